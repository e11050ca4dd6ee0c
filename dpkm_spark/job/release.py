"""A run that is over: what was asked, what was found, and whether it may be published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dpkm_spark.algorithms.algorithm import Clustering
from dpkm_spark.job.request import Request
from dpkm_spark.privacy.transcript import Answer

SEEDED = "the noise was seeded, so anyone can subtract it"
EXACT = "this method adds no noise; it is for comparison only"
EVALUATED = "the exact mean squared distance on the raw rows was asked for"


@dataclass(frozen=True, eq=False)
class Release:
    """Everything about a run that its outputs are made of.

    Parameters
    ----------
    request : Request
        What was asked.
    clustering : Clustering
        What was found.
    answers : tuple of Answer
        The noisy answers it was made from; none for a method that is not private.
    started : datetime
        When the run began. There is no end: how long a scan takes depends on the rows.
    spark_version : str
        Of the Spark that ran it.
    exact_nicv : float, optional
        With ``--evaluate``: un-noised, so the run is not private.
    evaluation_failure : str
        Why it could not be computed.
    """

    request: Request
    clustering: Clustering
    answers: tuple[Answer, ...]
    started: datetime
    spark_version: str
    exact_nicv: float | None = None
    evaluation_failure: str = ""

    @property
    def why_not_private(self) -> tuple[str, ...]:
        """Reasons why the outputs must not be published; empty if they may be."""
        reasons = []
        if not self.request.algorithm.private:
            reasons.append(EXACT)
        elif not self.clustering.private:
            reasons.append(SEEDED)
        if self.request.evaluate:
            # Whether it worked depends on the rows as well.
            reasons.append(EVALUATED)
        return tuple(reasons)
