"""Bounds and columns as people write them (CASES 1), on the command line and in TOML."""

from __future__ import annotations

from pathlib import Path

import pytest
from job_case import request_of, run_main

from dpkm_spark.domain import Domain

NEEDED = ("--input", "nowhere.parquet", "--k", "3", "--epsilon", "1")


def domain_of(*flags: str) -> Domain:
    return request_of(*NEEDED, *flags).domain


def domain_of_toml(folder: Path, text: str) -> Domain:
    file = folder / "job.toml"
    file.write_text(text, encoding="utf-8")
    return domain_of("--config", str(file))


@pytest.mark.parametrize(
    ("flags", "bounds"),
    [
        (["--bounds", "-1e3:1e3"], (-1e3, 1e3)),
        (["--bounds=-1e3:1e3"], (-1e3, 1e3)),
        (["--bounds", "-.5:.5"], (-0.5, 0.5)),
        (["--bounds", "-1:1"], (-1.0, 1.0)),
        (["--bounds", "-1_000:1_000"], (-1e3, 1e3)),
        (["--bounds", "x=-.5:.5"], (-0.5, 0.5)),
        (["--bounds=x=-.5:.5"], (-0.5, 0.5)),
        (["--bounds", "x=-1_000:1_000"], (-1e3, 1e3)),
        (["--bounds", "x=-2.5E-3:+7"], (-0.0025, 7.0)),
        (["--bounds", "x= -1 : 1 "], (-1.0, 1.0)),
        (["--bounds", "-20:-10"], (-20.0, -10.0)),
    ],
)
def test_bounds_are_read_as_written(flags: list[str], bounds: tuple[float, float]) -> None:
    domain = domain_of("--columns", "x", *flags)
    assert (domain.lower, domain.upper) == ((bounds[0],), (bounds[1],))
    assert not domain.packed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x=1:-1", "below the upper"),
        ("x=1:1", "below the upper"),
        ("x=nan:1", "finite"),
        ("x=0:inf", "finite"),
        ("x=-inf:0", "finite"),
        ("x=0:1e999", "finite"),
        ("x=-1e308:1e308", "width"),
        ("x=3", "LOWER:UPPER"),
        ("x=0:", "numbers"),
        ("x=:1", "numbers"),
        ("x=a:b", "numbers"),
        ("x=0:1:2", "LOWER:UPPER"),
        ("x=", "LOWER:UPPER"),
    ],
)
def test_wrong_bounds_are_one_error_that_names_the_flag_and_the_column(
    text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, *NEEDED, "--bounds", text).error(2)
    assert "--bounds" in message
    assert "'x'" in message
    assert reason in message


@pytest.mark.parametrize(
    ("flags", "column", "reason"),
    [
        (["--columns", "x", "--bounds", "x=0:1", "--bounds", "x=0:2"], "x", "twice"),
        (["--columns", "x", "--bounds", "x=0:1", "--bounds", "z=0:2"], "z", "not among"),
        (["--columns", "x,y", "--bounds", "x=0:1"], "y", "none given"),
        (["--columns", "x,y", "--bounds", "0:1,0:2"], "x", "single array"),
        (["--columns", "v", "--dimensions", "3", "--bounds", "0:1,0:2"], "v", "2 pairs for 3"),
    ],
)
def test_bounds_that_do_not_fit_the_columns_are_one_error(
    flags: list[str], column: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    message = run_main(capsys, *NEEDED, *flags).error(2)
    assert "--bounds" in message
    assert f"'{column}'" in message
    assert reason in message


def test_bounds_for_all_columns_given_twice_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--columns", "x", "--bounds", "0:1", "--bounds", "0:2")
    assert "given twice for all columns" in run_main(capsys, *NEEDED, *flags).error(2)


def test_own_bounds_win_over_the_ones_for_all() -> None:
    domain = domain_of("--columns", "x,y", "--bounds", "0:1", "--bounds", "y=-5:5")
    assert (domain.lower, domain.upper) == ((0.0, -5.0), (1.0, 5.0))


def test_columns_default_to_the_ones_with_bounds_in_the_order_given() -> None:
    domain = domain_of("--bounds", "b=0:1", "--bounds", "a=0:2")
    assert domain.columns == ("b", "a")
    assert domain.upper == (1.0, 2.0)


@pytest.mark.parametrize("name", ["a=b", "a:b", "a,b", "a=0:1", "x y", "ÄÖ", "a`b", "-k", "a.b"])
def test_any_column_name_takes_bounds_on_the_command_line(name: str) -> None:
    assert domain_of("--bounds", f"{name}=-1:2") == Domain.of([name], (-1.0, 2.0))


@pytest.mark.parametrize("name", ["a=b", "a:b", "a,b", "a=0:1", 'say "hi"', "ÄÖ", "a.b", " x "])
def test_any_column_name_takes_bounds_in_toml(name: str, tmp_path: Path) -> None:
    key = '"' + name.replace('"', '\\"') + '"'
    domain = domain_of_toml(tmp_path, f"[bounds]\n{key} = [-1, 2]\n")
    assert domain == Domain.of([name], (-1.0, 2.0))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('bounds = "-1:1"\ncolumns = ["x", "y"]', Domain.of(["x", "y"], (-1.0, 1.0))),
        ('bounds = [-1, 1]\ncolumns = "x,y"', Domain.of(["x", "y"], (-1.0, 1.0))),
        ('bounds = ["x=-1:1", "y=0:2"]', Domain.of(["x", "y"], {"x": (-1, 1), "y": (0, 2)})),
        ('[bounds]\nx = "-1:1"\ny = [0, 2.0]', Domain.of(["x", "y"], {"x": (-1, 1), "y": (0, 2)})),
        ("[bounds]\nv = [[0, 1], [0, 2]]", Domain.of_vector("v", [(0, 1), (0, 2)])),
        ('[bounds]\nv = "0:1,0:2"', Domain.of_vector("v", [(0, 1), (0, 2)])),
        ("dimensions = 3\n[bounds]\nv = [0, 1]", Domain.of_vector("v", [(0, 1)] * 3)),
        ("dimensions = 1\n[bounds]\nv = [0, 1]", Domain.of_vector("v", [(0, 1)])),
    ],
)
def test_toml_takes_every_form_of_bounds(text: str, expected: Domain, tmp_path: Path) -> None:
    assert domain_of_toml(tmp_path, text) == expected


@pytest.mark.parametrize(
    "value",
    [
        "3",
        "[1]",
        "[0, 1, 2]",
        "[true, 2]",
        "[[0, 1], [0]]",
        "1979-05-27",
        "[]",
        '"0"',
        "[0, 1" + "0" * 400 + "]",
    ],
    ids=lambda value: value[:12],
)
def test_malformed_bounds_in_toml_name_the_column(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f"[bounds]\nage = {value}\n", encoding="utf-8")
    message = run_main(capsys, *NEEDED, "--config", str(file)).error(2)
    assert "bounds" in message
    assert "'age'" in message


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x,y", ("x", "y")),
        (" x , y ", ("x", "y")),
        ('["x,1", "y z"]', ("x,1", "y z")),
        ('["x"]', ("x",)),
    ],
)
def test_columns_are_a_list_of_names_or_json(text: str, names: tuple[str, ...]) -> None:
    assert domain_of("--columns", text, "--bounds", "0:1").columns == names


@pytest.mark.parametrize("text", ["x,,y", ",", '["x"', '["x", 3]', '["x", ""]', '[["x"]]'])
def test_malformed_columns_are_one_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    message = run_main(capsys, *NEEDED, "--columns", text, "--bounds", "0:1").error(2)
    assert message.startswith("columns: ")


def test_a_column_given_twice_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    message = run_main(capsys, *NEEDED, "--columns", "x,y,x", "--bounds", "0:1").error(2)
    assert "'x' is given twice" in message


def test_bounds_for_all_without_columns_ask_for_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--columns" in run_main(capsys, *NEEDED, "--bounds", "0:1").error(2)


@pytest.mark.parametrize("flags", [["--dimensions", "0"], ["--dimensions", "1001"]])
def test_dimensions_have_a_range(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    message = run_main(capsys, *NEEDED, "--columns", "v", "--bounds", "0:1", *flags).error(2)
    assert "dimensions" in message
    assert "between 1 and 1000" in message


def test_dimensions_go_with_one_column(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--columns", "x,y", "--bounds", "0:1", "--dimensions", "2")
    assert "dimensions" in run_main(capsys, *NEEDED, *flags).error(2)
