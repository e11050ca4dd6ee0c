"""Help and dry run of every job: what a user sees before anything is touched or paid for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from conftest import ROOT
from job_case import PRIVATE, input_flags, request_of, run_main

from dpkm_spark.algorithms.registry import ALGORITHMS
from dpkm_spark.analysis import predicted_errors
from dpkm_spark.job.options import option_groups, parse_options

BOUNDS = ("--bounds", "x=0:1", "--bounds", "y=-5:5")
HEAVY = ("pyspark", "pandas", "matplotlib", "jinja2")
EVERY_SETTING = {setting.name for one in ALGORITHMS.values() for setting in one.settings}


def plan_of(capsys: pytest.CaptureFixture[str], name: str, *more: str) -> str:
    """Give the plan of a run on a table that is not there."""
    flags = (*input_flags("nowhere.parquet", k=4, epsilon="3/4", algorithm=name), *BOUNDS)
    outcome = run_main(capsys, *flags, "--dry-run", *more, algorithm=name)
    assert outcome.code == 0, outcome.shown
    assert outcome.err == ""
    return outcome.out


def queries_in(plan: str) -> list[tuple[str, int, Fraction]]:
    found = re.findall(r"^  (\w+) +(\d+)  (\d+(?:/\d+)?)(?: |$)", plan, re.MULTILINE)
    return [(name, int(times), Fraction(text)) for name, times, text in found]


def help_of(capsys: pytest.CaptureFixture[str], name: str) -> str:
    with pytest.raises(SystemExit) as leaving:
        parse_options(ALGORITHMS[name], ["--help"])
    assert leaving.value.code == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_shows_the_flags_of_this_algorithm_only(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(capsys, name)
    algorithm = ALGORITHMS[name]
    own = {setting.name for setting in algorithm.settings}
    # Settings of the other algorithms, by their own lines of help.
    shown = set(re.findall(r"^  --([a-z-]+)", text, re.MULTILINE))
    assert own <= shown
    assert not (EVERY_SETTING - own) & shown
    assert ("epsilon" in shown) is algorithm.private
    assert ("evaluate" in shown) is algorithm.private
    assert {option.name for group in option_groups(algorithm).values() for option in group} <= shown


@pytest.mark.parametrize("name", ALGORITHMS)
def test_help_fits_80_columns_and_says_what_the_job_does(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = help_of(capsys, name)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith(f"usage: jobs/{name}.py ")
    assert ALGORITHMS[name].about in text.replace("\n", " ")
    assert "exit codes:" in text
    assert "None" not in text
    assert ("WITHOUT privacy" in text) is (name not in PRIVATE)
    assert ("--epsilon 1" in text) is (name in PRIVATE)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_setting_says_its_default_or_that_there_is_none(name: str) -> None:
    for setting in ALGORITHMS[name].settings:
        if setting.default is not None and setting.metavar:
            number = isinstance(setting.default, (Fraction, float))
            default = f"{float(setting.default):g}" if number else str(setting.default)
            assert f"default: {default}" in setting.help.replace(",", ""), setting.name


# --- dry run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_dry_run_touches_nothing_and_loads_no_spark(name: str, tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        f"finally:\n    print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    flags = (*input_flags("nowhere.parquet", algorithm=name), *BOUNDS, "--dry-run")
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "jobs" / f"{name}.py"), *flags],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"Plan of {name} on nowhere.parquet; no data was touched." in done.stdout
    assert done.stderr == "[]\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PRIVATE)
def test_the_plan_lists_the_queries_whose_shares_add_up_exactly(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = queries_in(plan_of(capsys, name, "--public-count", "12345"))
    request = request_of(
        *input_flags("nowhere", k=4, epsilon="3/4"), *BOUNDS, "--public-count", "12345",
        algorithm=name,
    )  # fmt: skip
    plan = request.parameters.plan(Fraction(3, 4), 2, 12_345)
    assert found == [(query.name, query.times, query.epsilon) for query in plan]
    assert sum(times * share for _, times, share in found) == Fraction(3, 4)
    # N is declared, so nothing is paid for it.
    assert "count" not in [query for query, _, _ in found]


@pytest.mark.parametrize("name", PRIVATE)
def test_the_plan_for_a_secret_count_adds_up_as_well(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = queries_in(plan_of(capsys, name))
    assert sum(times * share for _, times, share in found) == Fraction(3, 4)


NOISE = {
    # sensitivity / epsilon in rows and coordinates in [-1, 1]; epsilon 3/4, d = 2, k = 4.
    "eugkm": {"cell_histogram": 1 / 0.75},
    "dplloyd": {"cluster_sums": 3 / 0.15},
    "gkm": {"marginals": 2 / 0.375, "block_sums": 8 / 0.375},
    # Ten choices share one query's epsilon.
    "pgkm": {"private_select": 10 * 8 / 0.09375},
    "hybrid": {"cell_histogram": 1 / 0.375, "cluster_sums": 3 / 0.375},
}


@pytest.mark.parametrize("name", PRIVATE)
def test_the_plan_shows_the_noise_of_each_query(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # A million rows are enough for the hybrid's last round; 50,000 too few for a ninth generation.
    count = "1000000" if name == "hybrid" else "50000"
    plan = plan_of(capsys, name, "--public-count", count)
    scales = {line.split()[0]: float(line.split()[-1]) for line in plan.splitlines()
              if line.split()[:1] and line.split()[0] in NOISE[name]}  # fmt: skip
    assert scales == {query: pytest.approx(scale, 1e-5) for query, scale in NOISE[name].items()}


@pytest.mark.parametrize("name", PRIVATE)
def test_the_plan_predicts_the_error_of_every_method(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(capsys, name, "--public-count", "50000")
    assert "at N = 50,000" in plan
    assert "an example" not in plan
    table = plan.partition("bias up to\n")[2].partition("\n\n")[0]
    assert table
    predictions = predicted_errors(50_000, 2, 4, 0.75)
    assert {p.method.split()[0].removesuffix("-3k") for p in predictions} == set(PRIVATE)
    lines = table.splitlines()
    for prediction in predictions:
        (row,) = [line for line in lines if line.startswith(f"  {prediction.method}  ")]
        noise = "?" if prediction.noise is None else f"{prediction.noise:.2g}"
        assert row[len(f"  {prediction.method}") :].split()[0] == noise
        # The note stands beside its row, or below it.
        assert prediction.note in re.sub(r"\s+", " ", table)


@pytest.mark.parametrize("name", PRIVATE)
def test_the_plan_without_a_declared_count_says_that_its_n_is_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(capsys, name)
    assert "at N = 100,000" in plan
    assert "N is an example: declare yours by --public-count" in plan


def test_a_plan_that_depends_on_n_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    says = "they depend on the number of rows"
    assert says in plan_of(capsys, "hybrid")
    assert says in plan_of(capsys, "pgkm")
    assert says not in plan_of(capsys, "eugkm")
    assert says not in plan_of(capsys, "hybrid", "--public-count", "100000")
    assert says not in plan_of(capsys, "pgkm", "--generations", "9")


@pytest.mark.parametrize(
    ("name", "flags", "told"),
    [
        ("dplloyd", (), "5 rounds of 4 clusters"),
        ("dplloyd", ("--rounds", "2"), "2 rounds of 4 clusters"),
        ("dplloyd", ("--split", "optimal"), "7 rounds of 4 clusters"),
        ("hybrid", ("--hybrid-rule", "never"), "no last round"),
        ("hybrid", ("--hybrid-rule", "always"), "then a round of DPLloyd"),
        ("eugkm", (), "cells a dimension"),
    ],
)
def test_the_plan_says_what_the_settings_lead_to(
    name: str, flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in re.sub(r"\s+", " ", plan_of(capsys, name, *flags))


#: The widest that plans get: many digits, a capped grid, hopeless methods.
WIDE = [
    (),
    ("--public-count", "100000000000"),
    ("--k", "1000", "--public-count", "1000"),
    ("--epsilon", "1e-6"),
    ("--epsilon", "22/7"),
    ("--epsilon", "0.123456789012"),
]


@pytest.mark.parametrize("flags", WIDE, ids=lambda flags: " ".join(flags) or "plain")
@pytest.mark.parametrize("name", PRIVATE)
def test_plans_fit_80_columns(
    name: str, flags: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(capsys, name, *flags)
    assert [line for line in plan.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name not in PRIVATE])
def test_the_plan_of_a_method_without_privacy_says_so(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_of(capsys, name)
    assert "NOT PRIVATE" in plan
    assert "epsilon =" not in plan
    assert queries_in(plan) == []
    assert "predicted error" not in plan


# --- mistakes that are easily made ----------------------------------------------------------------


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_setting_of_another_algorithm_is_refused(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = sorted(EVERY_SETTING - {setting.name for setting in ALGORITHMS[name].settings})
    assert foreign
    for flag in foreign:
        outcome = run_main(capsys, f"--{flag}=1", "--dry-run", algorithm=name)
        assert f"unknown option '--{flag}'" in outcome.error(2)


BAD = [
    ("dplloyd", "--rounds", "0"), ("dplloyd", "--rounds", "x"), ("dplloyd", "--split", "half"),
    ("dplloyd", "--k", "0"),
    ("gkm", "--block-size", "0"), ("gkm", "--block-size", "4k"), ("gkm", "--output-range", "data"),
    ("gkm", "--block-starts", "random"), ("gkm", "--public-count", "-1"),
    ("pgkm", "--generations", "0"), ("pgkm", "--max-generations", "7"),
    ("hybrid", "--hybrid-rule", "sometimes"), ("hybrid", "--theta", "0"),
    ("hybrid", "--count-share", "1"),
    ("lloyd", "--restarts", "0"), ("lloyd", "--max-iter", "0"), ("lloyd", "--k", "10001"),
    ("gene", "--generations", "0"), ("gene", "--generations", "2.5"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "flag", "value"), BAD)
def test_a_value_out_of_range_names_its_option(
    name: str, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome = run_main(capsys, "--dry-run", flag, value, algorithm=name)
    message = outcome.error(2)
    assert message.replace("_", "-").startswith(f"{flag[2:]}: ")
    assert value in message


@pytest.mark.parametrize("text", ["max-cells = 9\nmax_cells = 9", "max_cells = 9\nmax-cells = 10"])
def test_one_key_in_both_spellings_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(text + "\n", encoding="utf-8")
    message = run_main(capsys, "--config", str(file), "--dry-run").error(2)
    assert "twice" in message
    assert "max" in message


@pytest.mark.parametrize("spelling", ["max-cells", "max_cells"])
def test_either_spelling_alone_is_taken(spelling: str, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f"{spelling} = 99\n", encoding="utf-8")
    assert request_of("--config", str(file)).parameters.record()["max_cells"] == 99


@pytest.mark.parametrize("text", ["x=0:1,y=0:2", "x=-1:1,y=0:5,z=0:1", "x=0:1, y=0:2"])
def test_bounds_of_two_columns_in_one_flag_get_a_hint(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (*input_flags("nowhere.parquet"), "--bounds", text, "--dry-run")
    message = run_main(capsys, *flags).error(2)
    assert "give the flag once a column" in message
    assert "--bounds x=-1:1 --bounds y=0:5" in message


def test_a_configuration_may_hold_the_settings_of_its_own_algorithm_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text('k = 3\nblock-size = "3k"\n', encoding="utf-8")
    request = request_of("--config", str(file), algorithm="gkm")
    assert request.parameters.record()["block_size"] == "3k"
    message = run_main(capsys, "--config", str(file), "--dry-run", algorithm="dplloyd").error(2)
    assert "'block-size'" in message


@pytest.mark.parametrize("value", ['"paper"', '"3k"', "50", '"50"'])
def test_a_block_size_is_a_word_or_a_number(value: str, tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f"block-size = {value}\n", encoding="utf-8")
    size = request_of("--config", str(file), algorithm="gkm").parameters.record()["block_size"]
    assert str(size) == value.strip('"')
