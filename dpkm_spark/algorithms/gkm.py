"""GkM and GkM-3K: k-means by sample and aggregate, as in GUPT (the paper, Section 3.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dpkm_spark.algorithms.algorithm import (
    Algorithm,
    Clustering,
    PlannedQuery,
    in_order,
    is_private,
    require_budget,
)
from dpkm_spark.algorithms.count import CountParameters, learn_count
from dpkm_spark.algorithms.notify import Notify, silent
from dpkm_spark.algorithms.settings import (
    COUNT_SHARE,
    DEFAULT_COUNT_SHARE,
    LARGEST_K,
    PUBLIC_COUNT,
    K,
    Setting,
    check_count,
    check_range,
    one_of,
)
from dpkm_spark.analysis import gkm_blocks, small_blocks
from dpkm_spark.domain import FloatArray, IntArray
from dpkm_spark.errors import ParameterError
from dpkm_spark.kmeans.starts import sphere_packed_starts
from dpkm_spark.private_table import BlockPlan, PrivateTable

BLOCK_SIZES = ("paper", "3k")
RANGES = ("public", "dp")
#: Rounds of k-means in a block.
ROUNDS = 10
#: Bins per column that a private range is read off.
RANGE_BINS = 32
#: A column's noisy number of rows must exceed its own noise by this factor to be believed.
_TRUST = 10
#: With noise of this scale, as a share of the range, centroids say little.
_LOUD = 0.25

MOSTLY_NOISE = (
    "The noise on each centroid is a large part of the range it may lie in, so these centroids say "
    "little: use smaller blocks (--block-size 3k), more rows, fewer columns or a larger epsilon."
)


@dataclass(frozen=True)
class GKMParameters(CountParameters):
    """What GkM needs to know besides the table.

    Parameters
    ----------
    k : int
        Number of clusters, 1 to 10,000.
    block_size : {"paper", "3k"} or int
        Rows per block: N^0.6 as in GUPT (GkM), three times k (GkM-3K), or a number.
    output_range : {"public", "dp"}
        What a block's centroids are clamped to: the domain; or a box that half of the epsilon buys,
        as in the paper. The box is the default: it did as well or far better on all sets we tried.
    starts : {"public", "gupt"}
        Where k-means starts in a block, and the order of its centroids: see `BlockPlan`.
    public_count : int, optional
        N, if the user declares it public; then no budget goes to it.
    count_share : Fraction
        Share of epsilon for a noisy N, where N is not public.
    """

    k: int
    block_size: str | int = "paper"
    output_range: str = "dp"
    starts: str = "public"
    public_count: int | None = None
    count_share: Fraction = DEFAULT_COUNT_SHARE

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_range("k", self.k, 1, LARGEST_K)
        if not isinstance(self.block_size, str):
            check_range("block_size", self.block_size, 1, 1 << 40)
        elif self.block_size not in BLOCK_SIZES:
            raise ParameterError(
                f"block_size: got {self.block_size!r}; must be paper, 3k or a whole number"
            )
        one_of("output_range", RANGES)(self.output_range)
        one_of("starts", BlockPlan.METHODS)(self.starts)
        check_count(self.public_count, self.count_share)

    def split(self, epsilon: Fraction) -> tuple[Fraction, Fraction, Fraction]:
        """Split epsilon into the shares of count, range and centroids; they add up to it."""
        count = self.count_epsilon(epsilon)
        box = (epsilon - count) / 2 if self.output_range == "dp" else Fraction(0)
        return count, box, epsilon - count - box

    def blocks(self, count: int) -> int:
        """Give l for N rows, at least 1.

        GkM has floor(N^0.4) blocks, so about N^0.6 rows in each. At most 2^40, so that a noisy N
        that is all noise asks for no more; empty blocks take no memory.
        """
        if self.block_size == "paper":
            wanted = gkm_blocks(count)
        elif isinstance(self.block_size, str):
            wanted = small_blocks(count, self.k)
        else:
            wanted = max(count, 0) // self.block_size
        return min(max(wanted, 1), BlockPlan.MOST_BLOCKS)

    def plan(self, epsilon: Fraction, dimension: int, count: int) -> tuple[PlannedQuery, ...]:
        """List the queries in order; see `Parameters.plan`."""
        _, box, rest = self.split(epsilon)
        marginals = (PlannedQuery("marginals", box, dimension),) if box else ()
        blocks = PlannedQuery("block_sums", rest, self.k * dimension)
        return (*self.count_plan(epsilon), *marginals, blocks)

    def record(self) -> dict[str, Any]:
        """Give the parameters for `run.json`."""
        return {
            "k": self.k,
            "block_size": self.block_size,
            "output_range": self.output_range,
            "starts": self.starts,
            "rounds_per_block": ROUNDS,
            "count_share": str(self.count_share),
        }


@dataclass(frozen=True, eq=False, kw_only=True)
class GKMResult(Clustering):
    """What GkM releases; centroids in lexicographic order, and no sizes.

    Parameters
    ----------
    blocks : int
        l.
    block_size : float
        N / l, with the N that the method used.
    low, high : ndarray of float64, shape (d,)
        The box that centroids were clamped to, in the table's units.
    range_is_public : bool
        Whether the box is the domain, rather than bought.
    noise_scale : float
        Scale of the noise on a centroid's coordinate, as a share of the box's width.
    """

    blocks: int
    block_size: float
    low: FloatArray
    high: FloatArray
    range_is_public: bool
    noise_scale: float

    def record(self) -> dict[str, Any]:
        """Give what was found besides the arrays."""
        return {
            **super().record(),
            "blocks": self.blocks,
            "rows_per_block": self.block_size,
            "output_lower": self.low.tolist(),
            "output_upper": self.high.tolist(),
            "output_range_is_public": self.range_is_public,
            "noise_scale_over_range": self.noise_scale,
        }

    def facts(self) -> dict[str, str]:
        """Give lines for the report."""
        box = "the domain" if self.range_is_public else "bought with half of the budget"
        return {
            "Blocks": f"{self.blocks:,} of about {self.block_size:,.0f} rows",
            "Range of centroids": box,
            "Noise on a coordinate": f"scale {self.noise_scale:.3g} of that range",
        }

    def warnings(self) -> list[str]:
        """Say so if the centroids are mostly noise."""
        return [MOSTLY_NOISE] if self.noise_scale > _LOUD else []


def gkm(table: PrivateTable, parameters: GKMParameters, notify: Notify = silent) -> GKMResult:
    """Cluster a table with GkM, spending all the epsilon the table has left.

    A share of epsilon buys a noisy N, unless N is public. Rows fall into l blocks; k-means runs on
    each; its centroids are clamped to a box and averaged over the blocks, with noise. The box is
    the domain, or is read off noisy marginals for half of what is left (the paper's form). Noise on
    coordinate i of a centroid has scale (max_i - min_i) k d / (l epsilon_a), where epsilon_a is the
    share of the average: all that is left, or half of it.

    Neighbours: one row added or removed. Cost: ``table.remaining``, pure epsilon-DP.

    Parameters
    ----------
    table : PrivateTable
        The door to the records.
    parameters : GKMParameters
        k, block size, range, starts.
    notify : Notify
        Told, in words, what is being done.

    Returns
    -------
    GKMResult

    Raises
    ------
    BudgetExceededError
        If the table's budget is spent.
    EpsilonError
        If so small a share could overflow the noise; nothing is paid for then.

    References
    ----------
    Su et al., 2016, Sections 3.2 and 4 (GkM-3K), Equation 3; Mohan, Thakurta, Shi, Song, Culler,
    "GUPT: Privacy Preserving Data Analysis Made Easy", SIGMOD 2012.
    """
    whole = require_budget(table)
    _, range_epsilon, epsilon = parameters.split(whole)
    k, d = parameters.k, table.domain.dimension
    # Before anything else is paid for.
    table.require_block_mean(k, epsilon)
    count = learn_count(table, parameters, whole, notify) or 0
    low, high = -np.ones(d), np.ones(d)
    if range_epsilon:
        notify(f"asking for noisy marginals of {RANGE_BINS} bins a column")
        marginals = table.noisy_marginals(RANGE_BINS, range_epsilon)
        low, high = range_of(marginals, k, float(range_epsilon))
    blocks = parameters.blocks(count)
    # Starts lie in the box, where the data are; the box is released already.
    packed = sphere_packed_starts(1, k, d, table.public_random("starts"))[0]
    plan = BlockPlan.of(
        blocks=blocks,
        key=int(table.public_random("blocks").integers(1 << 63, dtype=np.uint64)),
        starts=low + (packed + 1.0) / 2.0 * (high - low),
        low=low,
        high=high,
        method=parameters.starts,
        rounds=ROUNDS,
        expected_rows=max(count, 0),
    )
    notify(f"asking for the noisy average of k-means on {blocks:,} blocks")
    means = table.noisy_block_mean(plan, epsilon)
    return GKMResult(
        centroids=in_order(table.domain.to_table_units(means)),
        noisy_sizes=None,
        how=f"by k-means on {blocks:,} blocks, averaged with noise",
        private=is_private(table),
        count=count,
        count_is_public=parameters.public_count is not None,
        blocks=blocks,
        block_size=max(count, 0) / blocks,
        low=table.domain.to_table_units(low),
        high=table.domain.to_table_units(high),
        range_is_public=not range_epsilon,
        noise_scale=k * d / (blocks * float(epsilon)),
    )


def range_of(marginals: IntArray, k: int, epsilon: float) -> tuple[FloatArray, FloatArray]:
    """Read a box for centroids off noisy marginals; costs nothing.

    In each column the box goes from the first bin at which the noisy rows so far exceed 1 / (2 k)
    of all (1 / 4 for k = 1), counted from the left, to the first such bin from the right; at k = 2
    that is the quartiles, as in GUPT. So it holds the median of an outermost cluster that has its
    fair share of the rows. Noise in the bins before tends to make the box wider. Where the number
    of rows does not stand out of its own noise, the box is the domain.

    Parameters
    ----------
    marginals : ndarray of int64, shape (d, bins)
        Noisy counts.
    k : int
        Number of clusters.
    epsilon : float
        What the marginals cost.

    Returns
    -------
    low, high : ndarray of float64, shape (d,)
        Normalised, ``low < high``.
    """
    d, bins = marginals.shape
    total = marginals.sum(axis=1)
    # Standard deviation of a sum of `bins` Laplace variables of scale d / epsilon.
    noise = math.sqrt(2 * bins) * d / epsilon
    part = total[:, None] / (2 * max(k, 2))
    first = (marginals.cumsum(axis=1) > part).argmax(axis=1)
    last = bins - (marginals[:, ::-1].cumsum(axis=1) > part).argmax(axis=1)
    usable = (total > _TRUST * noise) & (first < last)
    low = np.where(usable, first / bins * 2.0 - 1.0, -1.0)
    high = np.where(usable, last / bins * 2.0 - 1.0, 1.0)
    return low, high


def _block_size(value: Any) -> str | int:
    """Parse ``paper``, ``3k`` or a whole number."""
    if value in BLOCK_SIZES:
        return str(value)
    try:
        if isinstance(value, (bool, float)):
            raise ValueError
        return int(value)
    except (TypeError, ValueError):
        raise ParameterError(
            f"block-size: got {value!r}; must be paper, 3k or a whole number"
        ) from None


def _outlook(parameters: GKMParameters, epsilon: Fraction, dimension: int, count: int) -> str:
    blocks = parameters.blocks(count)
    return f"{blocks:,} block{'s' if blocks > 1 else ''} of about {max(count, 0) // blocks:,} rows"


def _configure(values: Mapping[str, Any]) -> GKMParameters:
    return GKMParameters(
        k=values["k"],
        block_size=values["block_size"],
        output_range=values["output_range"],
        starts=values["block_starts"],
        public_count=values["public_count"],
        count_share=values["count_share"],
    )


ALGORITHM = Algorithm(
    name="gkm",
    title="GkM",
    about="Private k-means by averaging k-means on blocks of rows (GkM, GkM-3K).",
    settings=(
        K,
        Setting("block-size", _block_size, "rows per block: paper (N^0.6, GkM), 3k (GkM-3K) or a "
                "number (default: paper)", "SIZE", default="paper"),
        Setting("output-range", one_of("output-range", RANGES), "what centroids are clamped to: "
                "dp (a range that costs half of epsilon, as in the paper) or public (the bounds; "
                "default: dp)", "NAME", default="dp"),
        Setting("block-starts", one_of("block-starts", BlockPlan.METHODS), "where k-means starts "
                "in a block: public or gupt (default: public)", "NAME", default="public"),
        PUBLIC_COUNT,
        COUNT_SHARE,
    ),
    configure=_configure,
    run=gkm,
    outlook=_outlook,
)  # fmt: skip
