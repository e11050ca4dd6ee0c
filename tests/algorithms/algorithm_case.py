"""A small table behind the door, and what must not be touched: for the tests of each method."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from dpkm_spark.domain import Domain, FloatArray
from dpkm_spark.privacy.budget import Budget
from dpkm_spark.privacy.mechanisms import NoiseSource
from dpkm_spark.privacy.transcript import Answer, MemoryTranscript
from dpkm_spark.private_table import PrivateTable
from dpkm_spark.queries.local import LocalEngine

DOMAIN = Domain.of(["x", "y"], {"x": (-10.0, 30.0), "y": (0.0, 1.0)})


def table_of(
    rows: npt.ArrayLike,
    *,
    epsilon: Fraction = Fraction(1),
    domain: Domain = DOMAIN,
    run_id: str = "run",
    answers: tuple[Answer, ...] = (),
    noise: NoiseSource | None = None,
) -> PrivateTable:
    """Put rows behind the door."""
    engine = LocalEngine(rows, domain)
    return PrivateTable(engine, Budget(epsilon), MemoryTranscript(run_id, answers), noise)


def some_rows(n: int = 500) -> FloatArray:
    """Rows of two unlike columns, some of them outside the domain."""
    random = np.random.default_rng(5)
    return np.column_stack([random.normal(10, 8, n), random.beta(2, 5, n)])


def asked(table: PrivateTable) -> list[tuple[str, Fraction]]:
    """List the queries that were answered, with their shares."""
    return [(answer.query.name, answer.query.epsilon) for answer in table.transcript.answers]


class Untouchable:
    """An engine and a noise source that must not be asked."""

    domain = DOMAIN
    private = True

    def __getattr__(self, name: str) -> Any:
        """Give a method that fails, whatever its name."""

        def fail(*_: object) -> None:
            pytest.fail(f"{name}: the engine or the noise was asked")

        return fail
