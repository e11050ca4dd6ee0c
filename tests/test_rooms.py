"""The rooms of the house: who may import whom, and who may draw randomness."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dpkm_spark"


def _lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the contracts of pyproject.toml on the package in ``folder``."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def _copy(folder: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(PACKAGE, folder / "dpkm_spark", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_the_rooms_import_downward_only() -> None:
    outcome = _lint_imports(ROOT)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "0 broken" in outcome.stdout


PLANTED = {
    "an algorithm asks the exact engine": (
        "algorithms/eugkm.py", "from dpkm_spark.queries.local import LocalEngine",
        "algorithms reach the records through the door only",
    ),
    "an algorithm reads with Spark": (
        "algorithms/eugkm.py", "from pyspark.sql import DataFrame",
        "know no Spark",
    ),
    "a kernel asks the exact engine": (
        "kmeans/lloyd.py", "from dpkm_spark.queries.engine import QueryEngine",
        "algorithms reach the records through the door only",
    ),
    "the door draws noise by itself": (
        "private_table.py", "import opendp.prelude",
        "only privacy.mechanisms draws noise",
    ),
    "privacy knows the algorithms": (
        "privacy/budget.py", "from dpkm_spark.algorithms.eugkm import LARGEST_K",
        "rooms import downward only",
    ),
    "an import inside a function": (
        "kmeans/starts.py", "def f() -> None:\n    import pyspark",
        "know no Spark",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("file", "line", "contract"), PLANTED.values(), ids=PLANTED.keys())
def test_a_planted_violation_is_caught(tmp_path: Path, file: str, line: str, contract: str) -> None:
    path = _copy(tmp_path) / "dpkm_spark" / file
    path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{line}\n", encoding="utf-8")
    outcome = _lint_imports(tmp_path)
    assert outcome.returncode != 0, outcome.stdout
    broken = [row for row in outcome.stdout.splitlines() if row.rstrip().endswith("BROKEN")]
    assert any(contract in row for row in broken), outcome.stdout


def test_a_room_that_no_contract_knows_is_caught(tmp_path: Path) -> None:
    room = _copy(tmp_path) / "dpkm_spark" / "cellar.py"
    room.write_text('"""A room with no place in the house."""\n', encoding="utf-8")
    assert _lint_imports(tmp_path).returncode != 0


# --- randomness -----------------------------------------------------------------------------------

#: Modules whose import, or attributes whose use, gives randomness.
SOURCES = {"opendp", "secrets", "random", "uuid", "SystemRandom", "urandom", "default_rng",
           "RandomState", "rand", "randn", "getrandbits"}  # fmt: skip

#: The one file for noise, and public randomness in plain sight.
ALLOWED = {
    "privacy/mechanisms.py": {"opendp", "random", "default_rng"},  # SystemNoise; SeededNoise
    "private_table.py": {"random", "default_rng"},  # public_random, seeded from the run id
    "job/sample.py": {"random", "default_rng"},  # the embedded sample, seeded
    "kmeans/starts.py": {"random"},  # np.random.Generator, as a type: it is handed in
    "kmeans/genetic.py": {"random"},  # likewise; its mutations hide nothing
    "algorithms/exact_table.py": {"random"},  # likewise, in the protocol of the baselines
    "evaluation.py": {"random", "default_rng"},  # public_random of a table without a door
    "job/options.py": {"uuid"},  # a name for the run
}


def _sources_of_randomness(code: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0], *(alias.name for alias in node.names)}
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found & SOURCES


@pytest.mark.parametrize(
    "code",
    ["import secrets", "from random import gauss", "np.random.laplace(0, 1)", "os.urandom(8)",
     "import opendp.prelude as dp", "F.rand()", "from numpy.random import default_rng"],
)  # fmt: skip
def test_the_scan_sees_randomness(code: str) -> None:
    assert _sources_of_randomness(code)


def test_only_the_named_files_touch_randomness() -> None:
    found = {
        str(path.relative_to(PACKAGE)): _sources_of_randomness(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    assert {file: names for file, names in found.items() if names} == {
        file: names for file, names in ALLOWED.items() if (PACKAGE / file).exists()
    }


def test_only_mechanisms_names_opendp_as_code() -> None:
    # As text too: no import by name, no getattr. Versions in the provenance are no noise.
    naming = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "opendp" in path.read_text(encoding="utf-8")
    }
    assert naming - {"job/provenance.py"} == {"privacy/mechanisms.py"}


def _seeds(code: str) -> list[str]:
    """Give what each generator of a file is seeded with."""
    return [
        ", ".join(map(ast.unparse, node.args))
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("default_rng")
    ]


#: A name of a parameter can only be the seed that the user gives for experiments.
PUBLIC_SEED = re.compile(r"public_seed\(.+\)|[\d_]+")


def test_public_randomness_is_seeded_by_the_run_id_or_a_constant() -> None:
    # default_rng() without a seed would make a replayed run differ from its transcript.
    seeds = {
        str(path.relative_to(PACKAGE)): _seeds(path.read_text(encoding="utf-8"))
        for path in PACKAGE.rglob("*.py")
    }
    assert seeds.pop("privacy/mechanisms.py") == ["seed"]
    found = [(file, seed) for file, given in seeds.items() for seed in given]
    assert len(found) >= 3
    assert [pair for pair in found if not PUBLIC_SEED.fullmatch(pair[1])] == []


@pytest.mark.parametrize("code", ["default_rng()", "np.random.default_rng(time_ns())"])
def test_the_scan_of_seeds_sees_a_bad_one(code: str) -> None:
    assert not PUBLIC_SEED.fullmatch(*_seeds(code))


#: Files that have generators handed in, or make none: `np.random` is a type there.
TYPES_ONLY = ("kmeans/starts.py", "kmeans/genetic.py", "algorithms/exact_table.py")


@pytest.mark.parametrize("file", TYPES_ONLY)
def test_kernels_and_protocols_name_generators_as_types_only(file: str) -> None:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    used = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert {name for name in used if ".random." in name} == {"np.random.Generator"}


def test_algorithms_draw_from_the_public_generators_of_their_table_only() -> None:
    # Not from one that is kept, or made of anything else: a replayed run would go astray.
    folder = PACKAGE / "algorithms"
    makers = [
        ast.unparse(node)
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("random")
    ]
    assert len(makers) >= 6
    for maker in makers:
        assert re.fullmatch(r"table\.public_random\('\w+'\)", maker), maker
