"""What README, the sample configurations and the help show must work as shown."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.job.options import option_groups, parse_options
from dpkm_spark.job.request import make_request

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Options of spark-submit itself that are mentioned.
SPARK_FLAGS = {"--master", "--conf", "--packages", "--supervise"}
CONFIGURATIONS = sorted((ROOT / "conf").glob("*.toml"))


def flags_of(algorithm: str) -> set[str]:
    """Give the flags that a job knows."""
    groups = option_groups(ALGORITHMS[algorithm]).values()
    own = {f"--{option.name}" for group in groups for option in group}
    return own | {"--config", "--help", "--version"}


def flags_in(text: str) -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]*", text)) - SPARK_FLAGS


def test_readme_python_runs_as_printed() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("[") >= 4


def test_every_flag_in_the_readme_exists() -> None:
    assert flags_in(README) <= set().union(*map(flags_of, ALGORITHMS))


def test_every_command_in_the_readme_is_a_valid_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not all of them name a file that exists, so the requests are made and not run.
    monkeypatch.chdir(ROOT)
    text = README.replace("\\\n", " ")
    commands = re.findall(r"^(?:\./)?spark-submit.*? jobs/(\w+)\.py(.*)$", text, re.MULTILINE)
    assert commands
    for name, rest in commands:
        arguments = shlex.split(rest, comments=True)
        arguments = ["conf/eugkm.toml" if a == "nightly.toml" else a for a in arguments]
        algorithm = ALGORITHMS[name]
        if "--help" not in arguments:
            assert make_request(algorithm, parse_options(algorithm, arguments)).parameters.k > 0


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_sample_configurations_are_valid_requests(path: Path) -> None:
    algorithm = ALGORITHMS[path.stem]
    request = make_request(algorithm, parse_options(algorithm, ["--config", str(path)]))
    assert request.domain.columns == ("x", "y")
    assert request.parameters.k == 15
    assert request.overwrite


def test_there_is_a_sample_configuration() -> None:
    assert [path.name for path in CONFIGURATIONS] >= ["eugkm.toml"]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_job_has_its_own_thin_file(name: str) -> None:
    code = (ROOT / "jobs" / f"{name}.py").read_text(encoding="utf-8")
    assert f'sys.exit(main("{name}"))' in code
    assert {path.stem for path in (ROOT / "jobs").glob("*.py")} >= set(ALGORITHMS)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_shows_only_real_flags_and_its_example_is_a_valid_request(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as leaving:
        parse_options(ALGORITHMS[name], ["--help"])
    assert leaving.value.code == 0
    text = capsys.readouterr().out
    # A description may name a flag of another group, but none that does not exist.
    assert flags_in(text) == flags_of(name)
    (example,) = re.findall(rf"jobs/{name}\.py (--input .*\\\n.*)\n", text)
    algorithm = ALGORITHMS[name]
    arguments = shlex.split(example.replace("\\\n", " "))
    request = make_request(algorithm, parse_options(algorithm, arguments))
    assert (request.domain.columns, request.parameters.k) == (("x", "y"), 15)
