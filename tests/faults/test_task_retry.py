"""A task that is killed and tried again changes no exact aggregate, blocks included."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from killed_tasks import ASK, BATCH, DOOMED, KERNELS, PARTITIONS, ROWS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Ask everything once, in a session that tries a task four times."""
    folder = tmp_path_factory.mktemp("killed")
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    env.pop("SPARK_REMOTE", None)
    script = Path(__file__).with_name("killed_tasks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, Any] = json.loads((folder / "answers.json").read_text(encoding="utf-8"))
    return answers


@pytest.mark.parametrize("name", ASK)
def test_killed_tasks_leave_the_answer_unchanged(name: str, told: dict[str, Any]) -> None:
    answers = dict(told[name]["answers"])
    expected = answers.pop("local")
    assert set(answers) == {"calm", "killed source"} | (
        {"killed kernel"} if name in KERNELS else set()
    )
    assert {how: answer == expected for how, answer in answers.items()} == dict.fromkeys(
        answers, True
    )
    assert json.dumps(expected).strip("[]0, ")


@pytest.mark.parametrize("name", ASK)
def test_the_first_attempts_were_killed_after_some_rows(name: str, told: dict[str, Any]) -> None:
    # Without this the test above could pass because nothing happened.
    attempts = told[name]["attempts"]["killed source"]
    for part in range(PARTITIONS):
        first, second = attempts[f"{part}-0"], attempts.get(f"{part}-1")
        assert first == [4 * BATCH]
        assert second == ([4 * BATCH] if part in DOOMED else None)
    # More rows passed than there are: the killed attempts' own came twice.
    passed = sum(sum(rows) for rows in attempts.values())
    assert passed == (PARTITIONS + len(DOOMED)) * 4 * BATCH
    assert ROWS == PARTITIONS * 6 * BATCH


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernels_first_attempts_were_killed_after_their_work(
    name: str, told: dict[str, Any]
) -> None:
    attempts = told[name]["attempts"]["killed kernel"]
    killed = [part for part in DOOMED if f"{part}-0" in attempts and f"{part}-1" in attempts]
    assert killed
    for part in killed:
        # It died in its first call, and did all of them the second time.
        assert len(attempts[f"{part}-0"]) == 1
        assert attempts[f"{part}-0"][0] > 0
        assert len(attempts[f"{part}-1"]) >= 1


def test_an_answer_that_depends_on_the_attempt_would_be_seen(told: dict[str, Any]) -> None:
    found = told["cluster_sums by Python"]
    assert found["planted fault"] != found["answers"]["local"]
