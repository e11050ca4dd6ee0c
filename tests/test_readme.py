"""What README and the sample configuration show must work as shown."""

from __future__ import annotations

import re
import subprocess
import sys

from conftest import ROOT

from dpkm_spark.job.eugkm import ABOUT, EXAMPLE, JOB
from dpkm_spark.job.options import ALL_OPTIONS, parse_options
from dpkm_spark.job.request import make_request

README = (ROOT / "README.md").read_text(encoding="utf-8")
#: Options of spark-submit itself that the README mentions.
SPARK_FLAGS = {"--master", "--conf", "--packages", "--supervise"}


def test_readme_python_runs_as_printed() -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-c", snippet], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("[") >= 4


def test_every_flag_in_the_readme_exists() -> None:
    known = {f"--{option.name}" for option in ALL_OPTIONS} | {"--config", "--help"} | SPARK_FLAGS
    assert set(re.findall(r"--[a-z][a-z-]+", README)) <= known


def test_sample_configuration_is_a_valid_request() -> None:
    path = str(ROOT / "conf" / "eugkm.toml")
    request = make_request(JOB, parse_options(JOB, ABOUT, EXAMPLE, ["--config", path]))
    assert request.domain.columns == ("x", "y")
    assert request.parameters.k == 15
    assert request.overwrite


def test_help_examples_show_only_real_flags() -> None:
    flags = set(re.findall(r"--[a-z][a-z-]+", EXAMPLE)) - SPARK_FLAGS
    assert flags
    assert flags <= {f"--{option.name}" for option in ALL_OPTIONS} | {"--config"}
