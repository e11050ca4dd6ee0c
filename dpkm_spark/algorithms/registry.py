"""Every algorithm by name: a new one is one file and one line here."""

from __future__ import annotations

from dpkm_spark.algorithms import dplloyd, eugkm, gene, gkm, hybrid, lloyd, pgkm
from dpkm_spark.algorithms.algorithm import Algorithm

ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        eugkm.ALGORITHM,
        dplloyd.ALGORITHM,
        gkm.ALGORITHM,
        pgkm.ALGORITHM,
        hybrid.ALGORITHM,
        lloyd.ALGORITHM,
        gene.ALGORITHM,
    )
}
