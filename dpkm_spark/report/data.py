"""What a report is made of: released values and public settings, nothing else.

One part is an exception, and is marked so on the page: `ReportData.evaluation`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        False if the noise was seeded or there was none; the report then warns loudly.
    epsilon : str or None
        The budget as the user wrote it; None or empty for a method that adds no noise.
    source : str
        What was read: a path or a table's name.
    domain : Domain
        Columns and public bounds.
    centroids : ndarray of float64, shape (k, d)
        In the table's units; largest cluster first where there are sizes.
    noisy_sizes : ndarray of float64, shape (k,), or None
        Rows per cluster, noisy unless the method adds no noise; may be negative. None for the
        methods that release no sizes.
    synopsis : Synopsis or None
        The released grid, for the methods that have one.
    answers : tuple of Answer
        The transcript.
    facts : mapping of str to str
        More lines for the technical section.
    count : str
        Number of rows as declared by the user, where it is public. A noisy one need not be given:
        it is read off the transcript.
    why_not_private : tuple of str
        Sentences for the banner of a run that is not private. Where none are given, they are
        worked out from the other parts.
    evaluation : mapping of str to str
        Label and value of numbers computed from the raw rows without noise. They are shown in a
        box of their own, and make the report say that it is not private.
    warnings : tuple of str
        What a reader must know before believing the result.
    about : str
        A sentence or two on the method, for people.
    unit : str
        What one neighbouring table has and the other has not, in the singular.

    Raises
    ------
    ParameterError
        If the arrays do not fit the domain or each other.
    """

    title: str
    run_id: str
    private: bool
    epsilon: str | None
    source: str
    domain: Domain
    centroids: FloatArray
    noisy_sizes: FloatArray | None
    synopsis: Synopsis | None
    answers: tuple[Answer, ...]
    facts: Mapping[str, str]
    count: str = ""
    why_not_private: tuple[str, ...] = ()
    evaluation: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    about: str = ""
    unit: str = "row"

    def __post_init__(self) -> None:
        """Check that the parts belong together."""
        d, shape = self.domain.dimension, self.centroids.shape
        if len(shape) != 2 or shape[0] < 1 or shape[1] != d:
            raise ParameterError(
                f"report: {d} dimensions need centroids of shape (k, {d}), k >= 1, got {shape}"
            )
        if self.noisy_sizes is not None and self.noisy_sizes.shape != (self.k,):
            raise ParameterError(
                f"report: {self.k} centroids need sizes of shape ({self.k},), "
                f"got {self.noisy_sizes.shape}"
            )
        if self.synopsis is not None and self.synopsis.domain.dimension != d:
            raise ParameterError("report: domain and synopsis differ in dimension")

    @property
    def k(self) -> int:
        """Number of clusters."""
        return len(self.centroids)

    @property
    def exact(self) -> bool:
        """Whether the method adds no noise at all: it has no epsilon."""
        return not self.epsilon

    @property
    def seeded(self) -> bool:
        """Whether noise came from a seed; also if a run is not private and nothing says why."""
        parts = [answer.private for answer in self.answers]
        if self.synopsis is not None:
            parts.append(self.synopsis.private)
        explained = self.exact or self.evaluation or self.why_not_private
        return not all(parts) or not (self.private or explained)

    @property
    def protects(self) -> bool:
        """Whether the page as a whole is private: it says so, and so does each part of it."""
        lacks = self.exact or self.seeded or self.evaluation or self.why_not_private
        return self.private and not lacks

    @property
    def charged(self) -> Fraction:
        """Exact sum of what the queries cost."""
        return sum((answer.query.epsilon for answer in self.answers), Fraction(0))

    @property
    def budget(self) -> Fraction:
        """The budget as a number; what was charged, if the text is no number or says less."""
        try:
            return max(parse_epsilon(self.epsilon or ""), self.charged)
        except EpsilonError:
            return self.charged
