"""What a report is made of: released values and public settings, nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from dpkm_spark.domain import Domain, FloatArray
from dpkm_spark.errors import EpsilonError, ParameterError
from dpkm_spark.privacy.budget import parse_epsilon
from dpkm_spark.privacy.transcript import Answer
from dpkm_spark.synopsis import Synopsis


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything a report shows.

    Parameters
    ----------
    title : str
        Such as "EUGkM: 15 private clusters of points.parquet".
    run_id : str
        Name of the run.
    private : bool
        False if the noise was seeded; the report then warns loudly.
    epsilon : str
        The budget as the user wrote it.
    source : str
        What was read: a path or a table's name.
    domain : Domain
        Columns and public bounds.
    centroids : ndarray of float64, shape (k, d)
        In the table's units, largest cluster first.
    noisy_sizes : ndarray of float64, shape (k,)
        Noisy rows per cluster; may be negative.
    synopsis : Synopsis or None
        The released grid, for the methods that have one.
    answers : tuple of Answer
        The transcript.
    facts : mapping of str to str
        More lines for the technical section.

    Raises
    ------
    ParameterError
        If the arrays do not fit the domain or each other.
    """

    title: str
    run_id: str
    private: bool
    epsilon: str
    source: str
    domain: Domain
    centroids: FloatArray
    noisy_sizes: FloatArray
    synopsis: Synopsis | None
    answers: tuple[Answer, ...]
    facts: Mapping[str, str]

    def __post_init__(self) -> None:
        """Check that the parts belong together."""
        k, d = len(self.noisy_sizes), self.domain.dimension
        if k < 1 or self.centroids.shape != (k, d):
            raise ParameterError(
                f"report: {k} sizes in {d} dimensions need centroids of shape ({k}, {d}), "
                f"got {self.centroids.shape}"
            )
        if self.synopsis is not None and self.synopsis.domain.dimension != d:
            raise ParameterError("report: domain and synopsis differ in dimension")

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.noisy_sizes)

    @property
    def protects(self) -> bool:
        """Whether the run was private: it says so, and so does each part of it."""
        parts = [answer.private for answer in self.answers]
        if self.synopsis is not None:
            parts.append(self.synopsis.private)
        return self.private and all(parts)

    @property
    def charged(self) -> Fraction:
        """Exact sum of what the queries cost."""
        return sum((answer.query.epsilon for answer in self.answers), Fraction(0))

    @property
    def budget(self) -> Fraction:
        """The budget as a number; what was charged, if the text is no number or says less."""
        try:
            return max(parse_epsilon(self.epsilon), self.charged)
        except EpsilonError:
            return self.charged

    def histogram_scale(self) -> float | None:
        """Give the noise scale of the synopsis's counts, if the transcript holds its query."""
        if self.synopsis is None:
            return None
        shape = self.synopsis.counts.shape
        for answer in reversed(self.answers):
            if answer.query.name == "cell_histogram" and answer.values.shape == shape:
                return answer.scale
        return None
