"""Flags, TOML, help and the dry run: everything before Spark is touched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from conftest import ROOT
from job_case import request_of, run_main

from dpkm_spark import __version__
from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.algorithms.settings import Setting
from dpkm_spark.job.exits import exit_code
from dpkm_spark.job.options import default_run_id, option_groups, parse_options

NEEDED = ("--input", "nowhere.parquet", "--k", "3", "--epsilon", "1", "--bounds", "x=0:1")
EUGKM = ALGORITHMS["eugkm"]
OPTIONS: list[Setting] = [option for group in option_groups(EUGKM).values() for option in group]
HEAVY = ("pyspark", "pandas", "matplotlib", "jinja2")


def write(folder: Path, text: str) -> str:
    file = folder / "job.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the job as a process that would need no Spark, and tell which modules it loaded."""
    code = (
        "import runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        f"finally:\n    print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", code, str(ROOT / "jobs" / "eugkm.py"), *arguments]
    env = {**os.environ, "COLUMNS": "80", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    "value", ["0", "-1", "nan", "inf", "-inf", "1e-300", "1e300", "abc", "1/0"]
)
def test_a_useless_epsilon_is_one_line_and_exit_2(
    value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (*NEEDED[:4], "--bounds", "x=0:1", "--epsilon", value)
    message = run_main(capsys, *flags).error(2)
    assert message.startswith("epsilon: ")
    assert value in message


@pytest.mark.parametrize(
    ("value", "exact"),
    [("0.1", Fraction(1, 10)), ("1e-3", Fraction(1, 1000)), ("1/3", Fraction(1, 3))],
)
def test_an_epsilon_is_the_rational_its_user_wrote(value: str, exact: Fraction) -> None:
    assert request_of(*NEEDED, "--epsilon", value).epsilon == exact


@pytest.mark.parametrize("missing", ["bounds", "k", "epsilon"])
def test_a_missing_option_is_named_with_an_example(
    missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = [(NEEDED[i], NEEDED[i + 1]) for i in range(0, len(NEEDED), 2)]
    flags = [text for pair in pairs if pair[0] != f"--{missing}" for text in pair]
    assert f"--{missing}=" in run_main(capsys, *flags).error(2)


@pytest.mark.parametrize(
    "flags",
    [["--bounds", "0:1"], ["--columns", "x"], ["--dimensions", "3"], ["--input-schema", "x int"]],
)
def test_options_of_an_input_without_one_are_refused(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, *flags).error(2)
    assert message.startswith(flags[0][2:])
    assert "--input" in message


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--k", "0"), ("--k", "-3"), ("--k", "2.5"), ("--k", "three"), ("--k", "10001"),
        ("--restarts", "0"), ("--max-iter", "0"), ("--theta", "0"), ("--theta", "nan"),
        ("--theta", "x"), ("--max-cells", "0"), ("--max-cells", "1e9"), ("--public-count", "-1"),
        ("--count-share", "0"), ("--count-share", "1"), ("--count-share", "2"), ("--grid", "hex"),
        ("--grid", "fixed"), ("--cells-per-dimension", "0"), ("--output-format", "xls"),
        ("--seed", "-1"), ("--seed", "a"), ("--run-id", "a/b"), ("--run-id", "../x"),
        ("--input-option", "sep"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_names_its_option(
    flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, *NEEDED, "--dry-run", flag, value).error(2)
    name = "cells_per_dimension" if value == "fixed" else flag[2:]
    assert message.replace("_", "-").startswith(name.replace("_", "-"))


@pytest.mark.parametrize(
    ("flag", "nearest"),
    [("--epsilom", "--epsilon"), ("--bound=0:1", "--bounds"), ("--seeds", "--seed")],
)
def test_an_unknown_flag_suggests_the_nearest(
    flag: str, nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, *NEEDED, flag, "1").error(2)
    assert flag.partition("=")[0] in message
    assert f"did you mean {nearest}?" in message


@pytest.mark.parametrize("flag", ["--zzzzzz", "stray"])
def test_a_stray_argument_points_to_the_help(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "see --help" in run_main(capsys, *NEEDED, flag).error(2)


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "unknown option '--overw'" in run_main(capsys, *NEEDED, "--overw").error(2)


def test_a_flag_without_its_value_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--seed" in run_main(capsys, *NEEDED, "--seed").error(2)


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, 'k = 7\nepsilon = 2\nrun-id = "night"\nmax_cells = 99\n')
    request = request_of("--config", file, "--k", "4")
    assert request.parameters.k == 4
    assert request.epsilon == 2
    assert request.run_id == "night"
    assert request.parameters.rule.max_cells == 99


def test_bounds_by_flag_replace_those_of_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[bounds]\nx = [0, 1]\ny = [0, 1]\n")
    request = request_of(*NEEDED[:6], "--config", file, "--bounds", "z=0:5")
    assert request.domain.columns == ("z",)


def test_every_option_can_be_in_the_file(tmp_path: Path) -> None:
    texts = {
        "bounds": "{x = [0, 1]}", "columns": '["x"]', "epsilon": "1", "input-option": '{sep = ";"}',
        "grid": '"fixed"', "output-format": '"csv"', "theta": "2.5", "count-share": "0.1",
        "dimensions": "1",
    }  # fmt: skip
    lines = []
    for option in OPTIONS:
        switch, whole = not option.metavar, option.metavar in ("K", "M", "R", "T", "N", "SEED")
        default = "true" if switch else "3" if whole else '"abc"'
        lines.append(f"{option.name} = {texts.get(option.name, default)}")
    values = parse_options(EUGKM, ["--config", write(tmp_path, "\n".join(lines))])
    assert values["input_option"] == {"sep": ";"}
    assert values["overwrite"] is True
    assert values["restarts"] == 3
    assert values["input"] == "abc"


def test_numbers_and_switches_of_reader_options_become_text(tmp_path: Path) -> None:
    file = write(tmp_path, "[input-option]\nheader = true\nmaxColumns = 9\nsep = ';'\n")
    options = parse_options(EUGKM, ["--config", file])["input_option"]
    assert options == {"header": "true", "maxColumns": "9", "sep": ";"}


def test_a_reader_option_may_hold_an_equals_sign() -> None:
    values = parse_options(EUGKM, ["--input-option", "sep==", "--input-option", "a=b=c"])
    assert values["input_option"] == {"sep": "=", "a": "b=c"}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("k = 5.5", "k"),
        ("k = 5.0", "k"),
        ("k = true", "k"),
        ('k = "five"', "k"),
        ("k = [5]", "k"),
        ("epsilon = true", "epsilon"),
        ("epsilon = nan", "epsilon"),
        ("epsilon = [1]", "epsilon"),
        ("theta = true", "theta"),
        ("theta = [1]", "theta"),
        ('overwrite = "yes"', "overwrite"),
        ("overwrite = 1", "overwrite"),
        ("input = 3", "input"),
        ('output = ""', "output"),
        ("grid = 3", "grid"),
        ('grid = ["eug"]', "grid"),
        ("columns = 3", "columns"),
        ("columns = [3]", "columns"),
        ("run-id = 3", "run-id"),
        ("input-option = 3", "input-option"),
        ("input-option = true", "input-option"),
        ("input-option = [3]", "input-option"),
    ],
)
def test_a_value_of_the_wrong_type_in_the_file_names_its_key(
    text: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, "--dry-run", "--config", write(tmp_path, text)).error(2)
    assert message.startswith(f"{name}: ")


def test_a_whole_number_may_be_quoted_in_the_file(tmp_path: Path) -> None:
    assert request_of("--config", write(tmp_path, 'k = "5"')).parameters.k == 5


def test_an_unknown_key_suggests_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, "--config", write(tmp_path, "epsilom = 1")).error(2)
    assert "'epsilom'" in message
    assert "did you mean 'epsilon'?" in message


def test_malformed_toml_is_one_error_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, "--config", write(tmp_path, "k = = 3")).error(2)
    assert "not TOML" in message
    assert "line 1" in message


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00k"])
def test_a_config_that_cannot_be_read_is_one_error(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nightly.toml"
    if content is not None:
        file.write_bytes(content)
    message = run_main(capsys, "--config", str(file)).error(2)
    assert message.startswith("config: ")
    assert "nightly.toml" in message


def test_default_run_ids_differ_and_are_allowed() -> None:
    first, second = default_run_id(), default_run_id()
    assert first != second
    assert request_of("--run-id", first).output == f"dpkm-out/{first}"


@pytest.mark.parametrize("flag", ["--cluster-column", "--size-column"])
def test_one_name_for_two_output_columns_is_refused(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (*NEEDED, "--cluster-column", "Same", "--size-column", "same")
    assert flag in run_main(capsys, *flags, "--dry-run").error(2) or flag == "--cluster-column"


@pytest.mark.parametrize(
    ("column", "flag"),
    [
        ("cluster", "--cluster-column"),
        ("Cluster", "--cluster-column"),
        ("noisy_size", "--size-column"),
        ("NOISY_SIZE", "--size-column"),
    ],
)
def test_a_clash_with_an_output_column_says_which_option_renames_it(
    column: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, *NEEDED[:6], "--bounds", f"{column}=0:1").error(2)
    assert f"rename it with {flag}" in message
    assert repr(column) in message


def test_a_packed_column_cannot_be_written_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--columns", "v", "--bounds", "0:1,0:1", "--output-format", "csv")
    assert "output-format" in run_main(capsys, *NEEDED[:6], *flags).error(2)


def test_secrets_are_withheld_from_the_record() -> None:
    flags = ("--input-option", "fs.secret.key=hunter2", "--input-option", "sep=;")
    request = request_of("--input", "s3a://user:hunter2@bucket/x", *NEEDED[2:], *flags)
    assert "hunter2" not in str(request.public_input()) + request.source_name
    assert request.public_input()["options"]["sep"] == ";"


def test_an_error_without_a_kind_of_its_own_is_a_fault() -> None:
    from dpkm_spark.errors import DPKMeansError

    assert exit_code(DPKMeansError("x")) == 1


def test_help_fits_80_columns_and_needs_no_spark() -> None:
    done = python("--help")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "--bounds=-1:1" in done.stdout
    assert "exit codes:" in done.stdout
    assert all(f"--{option.name}" in done.stdout for option in OPTIONS)
    assert "\x1b" not in done.stdout
    assert done.stderr == "[]\n"


def test_version_is_the_packages_own(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        run_main(capsys, "--version")
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"dpkm-spark {__version__}\n"


def test_a_dry_run_needs_no_spark_and_touches_nothing(tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = python(*NEEDED, "--dry-run", "--output", str(output))
    assert done.returncode == 0, done.stderr
    assert "no data was touched" in done.stdout
    assert done.stderr == "[]\n"
    assert not output.exists()


def shares(plan: str) -> dict[str, Fraction]:
    """Give what all queries of a kind cost together, by the exact numbers of a plan."""
    found = re.findall(r"^  (\w+) +(\d+)  (\d+(?:/\d+)?)(?: |$)", plan, re.MULTILINE)
    return {name: int(times) * Fraction(text) for name, times, text in found}


@pytest.mark.parametrize("epsilon", ["1", "0.1", "1/3", "1e-6"])
def test_the_shares_of_the_plan_add_up_exactly(
    epsilon: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = run_main(capsys, *NEEDED, "--epsilon", epsilon, "--dry-run")
    assert plan.code == 0
    assert plan.err == ""
    assert set(shares(plan.out)) == {"count", "cell_histogram"}
    assert sum(shares(plan.out).values()) == Fraction(epsilon)
    assert shares(plan.out)["count"] == Fraction(epsilon) / 50


def test_the_plan_shows_the_share_of_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    plan = run_main(capsys, *NEEDED, "--count-share", "0.25", "--dry-run").out
    assert shares(plan) == {"count": Fraction(1, 4), "cell_histogram": Fraction(3, 4)}


def test_the_plan_for_a_declared_count_buys_no_count_and_shows_one_grid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = run_main(capsys, "--dry-run", "--public-count", "5000", "--epsilon", "1").out
    # The paper's rule: M = (N epsilon / 10)^(2d / (2 + d)) = 500 cells; 22 a dimension.
    assert shares(plan) == {"cell_histogram": Fraction(1)}
    assert plan.count("N =") == 1
    assert "22 cells a dimension, 484 in all" in plan


def test_the_plan_for_a_secret_count_shows_grids_for_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = run_main(capsys, "--dry-run").out
    assert re.findall(r"N = +([\d,]+):", plan) == [
        "1,000", "10,000", "100,000", "1,000,000", "10,000,000", "100,000,000"
    ]  # fmt: skip


def test_the_plan_tells_where_the_cap_lowered_the_grid(capsys: pytest.CaptureFixture[str]) -> None:
    plan = run_main(capsys, "--dry-run", "--public-count", "1000000", "--max-cells", "100").out
    # 100,000 cells wanted: 316 a dimension.
    assert "10 cells a dimension, 100 in all, capped from 316 a dimension" in plan


def test_the_plan_of_a_fixed_grid_needs_no_count(capsys: pytest.CaptureFixture[str]) -> None:
    plan = run_main(capsys, "--dry-run", "--grid", "fixed", "--cells-per-dimension", "7").out
    assert shares(plan) == {"cell_histogram": Fraction(1)}
    assert "7 cells a dimension, 49 in all" in plan
    assert "by the number of rows" not in plan
    # The table of predictions is for the sample's N.
    assert plan.count("N =") == 1


def test_the_plan_shows_bounds_and_no_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = (*NEEDED[:6], "--bounds", "evil\x1b[2Jname\n=-1:2.5", "--dry-run")
    plan = run_main(capsys, *flags).out
    assert "evil\u241b[2Jname\u240a: -1.0 to 2.5" in plan
    assert "\x1b" not in plan


def test_cells_without_the_fixed_rule_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run_main(capsys, "--cells-per-dimension", "64", "--dry-run")
    assert "--grid fixed" in outcome.error(2)
