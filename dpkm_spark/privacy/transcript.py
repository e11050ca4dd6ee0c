"""The transcript: every noisy answer of a run, in order.

A run is its transcript. All else a run produces (starts, Lloyd on the synopsis, plots) is
deterministic post-processing of these answers and of public randomness seeded from the run id,
so outputs can be deleted and rebuilt, and a second driver that finds stored answers continues
where they stop and pays nothing twice.

`MemoryTranscript` lives as long as its process. The protocol has the two steps that a durable
transcript needs: `reserve` makes the charge durable before any noise exists, `release` stores the
answer before anything may use it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dpkm_spark.errors import InvariantError

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Query:
    """A question to the table: all of it is public.

    Parameters
    ----------
    name : str
        Kind of aggregate, such as ``count`` or ``cell_histogram``.
    parameters : mapping of str to int
        What the aggregate depends on besides the rows, such as the grid.
    sensitivity : int
        L1 sensitivity of the answer under adding or removing one privacy unit.
    epsilon : Fraction
        The share of the budget charged for it.
    """

    name: str
    parameters: Mapping[str, int]
    sensitivity: int
    epsilon: Fraction


@dataclass(frozen=True, eq=False)
class Answer:
    """A noisy answer: the only form in which anything about the rows leaves the door.

    Parameters
    ----------
    query : Query
        What was asked.
    mechanism : str
        Name of the noise distribution.
    scale : float
        Its scale.
    epsilon_used : float
        Cost by the mechanism's own privacy map, at most ``query.epsilon``.
    private : bool
        False if the noise was seeded.
    values : ndarray of int64
        The noisy integers; read-only.
    """

    query: Query
    mechanism: str
    scale: float
    epsilon_used: float
    private: bool
    values: IntArray

    def __post_init__(self) -> None:
        """Freeze the values: a released answer never changes."""
        self.values.flags.writeable = False


class Transcript(Protocol):
    """Stored answers of one run."""

    @property
    def run_id(self) -> str:
        """Name of the run; public randomness is seeded from it."""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Answers released so far, in order."""

    def reserve(self, position: int, query: Query) -> None:
        """Record the charge for the answer at ``position``, before its noise is drawn."""

    def release(self, position: int, answer: Answer) -> None:
        """Store the answer for a reserved position, before anything uses it."""


class MemoryTranscript:
    """A transcript that lives in this process.

    Parameters
    ----------
    run_id : str
        Name of the run.
    answers : tuple of Answer
        Answers of an earlier attempt, to be replayed.
    """

    def __init__(self, run_id: str, answers: tuple[Answer, ...] = ()) -> None:
        self._run_id = run_id
        self._answers = list(answers)
        self._reserved: Query | None = None

    @property
    def run_id(self) -> str:
        """Name of the run."""
        return self._run_id

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Answers released so far, in order."""
        return tuple(self._answers)

    def reserve(self, position: int, query: Query) -> None:
        """Record that ``query`` is charged; one that failed before its release is given up."""
        if position != len(self._answers):
            raise InvariantError(f"transcript: position {position} cannot be reserved now")
        self._reserved = query

    def release(self, position: int, answer: Answer) -> None:
        """Append the answer to the query that was reserved."""
        if position != len(self._answers) or answer.query != self._reserved:
            raise InvariantError(f"transcript: position {position} was not reserved for this query")
        self._answers.append(answer)
        self._reserved = None


def public_seed(run_id: str, purpose: str) -> int:
    """Derive a seed for public randomness, such as starting centroids, from the run id.

    It is the same on every machine and attempt. It has nothing to do with noise.
    """
    digest = hashlib.sha256(f"dpkm-spark\0{run_id}\0{purpose}".encode()).digest()
    return int.from_bytes(digest[:16], "big")
