"""How large the error of each method is: pure functions of public numbers.

All errors are in normalised units, for columns scaled to [-1, 1], and are those of one centroid:
the expected squared distance, summed over the d dimensions, by which noise moves it away from the
mean of its cluster; averaged over clusters, also what noise adds to NICV. The model: k clusters of
N / k rows each, cubes that tile the domain, and noise that is small beside a cluster's size. The
equations are the paper's (Su et al., 2016); it fixes the orders, the constants are derived and
checked by simulation in docs/analysis.md.

N may be noisy: below 1 it counts as 1, as it does for the grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from dpkm_spark.errors import ParameterError
from dpkm_spark.grid import (
    DEFAULT_MAX_CELLS,
    DEFAULT_THETA,
    GridChoice,
    GridRule,
    most_cells_per_dimension,
)

#: Root mean square of a centroid's coordinate over the width 2 of a column, as the authors' later
#: work assumes it: sum_i o_i^2 = 4 d rho^2.
RHO = 0.225
#: t of DPLloyd in the paper.
DEFAULT_ROUNDS = 5
MOST_OPTIMAL_ROUNDS = 7


def squared_norm(d: int) -> float:
    """Give the assumed sum_i o_i^2 of a centroid, 4 d rho^2 = 0.2025 d."""
    return 4 * d * RHO**2


def dplloyd_mse(
    *,
    n: int,
    d: int,
    k: int,
    epsilon: float,
    rounds: int = DEFAULT_ROUNDS,
    norm: float | None = None,
) -> float:
    """Give the error of a centroid after one of t rounds of DPLloyd: Proposition 1, Eq. 7, Eq. 11.

    2 (d + 1)^2 (d + sum o^2) (t k / (N epsilon))^2: a round has epsilon / t, so sums and counts
    have noise of scale b = (d + 1) t / epsilon and variance 2 b^2; and noise DS, DC moves a
    coordinate by (DS - o DC) / (N / k), to first order.

    Parameters
    ----------
    n, d, k, epsilon, rounds : int, int, int, float, int
        Rows, dimensions, clusters, epsilon of all rounds together, t.
    norm : float, optional
        sum_i o_i^2 of the centroid; by default `squared_norm`.
    """
    _check(d=d, k=k, rounds=rounds)
    own = squared_norm(d) if norm is None else norm
    spread = k * rounds / _work(n, epsilon)
    return 2 * (d + 1) ** 2 * (d + own) * spread * spread


def optimal_ratio(d: int) -> float:
    """Give eps_count / eps_coordinate, cbrt(4 d rho^2), which makes a round's error least."""
    return float(squared_norm(d) ** (1 / 3))


def count_weight(d: int) -> int:
    """Give that ratio in units of 1 / 2^20, at least 1: the weight of a count among sums."""
    return max(round(optimal_ratio(d) * (1 << 20)), 1)


def optimal_mse(*, n: int, d: int, k: int, epsilon: float, rounds: int = DEFAULT_ROUNDS) -> float:
    """Give the error of a centroid after one of t rounds of DPLloyd with the optimal split.

    2 (d + c)^3 (t k / (N epsilon))^2 with c = `optimal_ratio`: of a round's E, a coordinate gets
    E / (d + c) and the count c E / (d + c), where d / eps_i^2 + 4 d rho^2 / eps_0^2 is least.
    """
    _check(d=d, k=k, rounds=rounds)
    spread = k * rounds / _work(n, epsilon)
    return 2 * (d + optimal_ratio(d)) ** 3 * spread * spread


def optimal_rounds(*, n: int, d: int, k: int, epsilon: float) -> int:
    """Give the number of rounds t in [2, 7] of the improved DPLloyd.

    t = floor(epsilon / eps_m), eps_m = sqrt(500 k^3 / n^2 (d + cbrt(4 d rho^2))^3): the budget at
    which the error of one round, summed over the k centroids, is 0.004.
    """
    _check(d=d, k=k)
    least = math.sqrt(500 * k**3 * (d + optimal_ratio(d)) ** 3)
    return int(min(max(_work(n, epsilon) / least, 2), MOST_OPTIMAL_ROUNDS))


def eug_cells(*, n: int, d: int, epsilon: float, theta: float = DEFAULT_THETA) -> float:
    """Give M = (N epsilon / theta)^(2d / (2 + d)), unrounded and uncapped."""
    _check(d=d)
    ratio = _within(_work(n, epsilon) / _positive("theta", theta))
    return float(ratio ** (2 * d / (2 + d)))


def grid_variance(
    *, n: int, d: int, k: int, epsilon: float, cells: float, finite: bool = True
) -> float:
    """Give the error that the noise of M cells causes in a centroid: Eq. 9.

    (2 d / 3) M k^((d - 2) / d) / (N epsilon)^2, the limit of small cells. For cells of finite size
    it is exact after the factor 1 - (k / M)^(2 / d): a cluster of a single cell has no such error.

    Parameters
    ----------
    n, d, k, epsilon, cells : int, int, int, float, float
        Rows, dimensions, clusters, epsilon of the histogram, M.
    finite : bool
        Whether to apply the factor; Eq. 9 itself is without.
    """
    _check(d=d, k=k)
    work = _work(n, epsilon)
    within = float(min(k / _positive("cells", cells), 1.0) ** (2 / d)) if finite else 0.0
    return (1 - within) * 2 * d / 3 * float(k ** ((d - 2) / d)) * (cells / work) / work


def grid_bias_bound(*, d: int, cells: float) -> float:
    """Give d / M^(2 / d), the squared half-diagonal of a cell: Eq. 10.

    A row may be that far from its cell's centre. A centroid is a mean of many cells, whose errors
    mostly cancel, so its bias is far below this bound.
    """
    _check(d=d)
    return d / float(_positive("cells", cells) ** (2 / d))


def eugkm_variance(
    *, n: int, d: int, k: int, epsilon: float, theta: float = DEFAULT_THETA
) -> float:
    """Give Eq. 9 for the M of EUGkM, unrounded and without the finite-grid factor: Eq. 12."""
    cells = eug_cells(n=n, d=d, epsilon=epsilon, theta=theta)
    return grid_variance(n=n, d=d, k=k, epsilon=epsilon, cells=cells, finite=False)


def hybrid_mse(*, n: int, d: int, k: int, epsilon: float, norm: float | None = None) -> float:
    """Give the error after the hybrid's last round, Eq. 13: Eq. 7 for t = 1 and epsilon / 2."""
    # Two rounds on epsilon have epsilon / 2 each.
    return dplloyd_mse(n=n, d=d, k=k, epsilon=epsilon, rounds=2, norm=norm)


def hybrid_threshold(
    *, d: int, k: int, theta: float = DEFAULT_THETA, norm: float | None = None
) -> float:
    """Give the least N epsilon for which Eq. 15 holds: theta (A / B)^((2 + d) / (2 d)).

    Eq. 13 is A = 8 (d + 1)^2 k^2 (d + sum o^2) and Eq. 12 is M B, B = (2 d / 3) k^((d - 2) / d),
    both over (N epsilon)^2.
    """
    _check(d=d, k=k)
    own = squared_norm(d) if norm is None else norm
    a = 8 * (d + 1) ** 2 * k**2 * (d + own)
    b = 2 * d / 3 * float(k ** ((d - 2) / d))
    return _within(_positive("theta", theta) * float((a / b) ** ((2 + d) / (2 * d))))


@dataclass(frozen=True)
class Inequality:
    """Two predicted errors of a centroid: whether ``left`` is at most ``right``."""

    left: float
    right: float

    @property
    def holds(self) -> bool:
        """Whether left <= right."""
        return self.left <= self.right

    def record(self) -> dict[str, Any]:
        """Give both sides and the outcome, for `run.json`."""
        return {"left": self.left, "right": self.right, "holds": self.holds}


@dataclass(frozen=True)
class HybridDecision:
    """Whether a last round of DPLloyd is predicted to pay.

    Parameters
    ----------
    against_dplloyd : Inequality
        Eq. 14: the error of the hybrid's round (Eq. 13) <= that of DPLloyd (Eq. 11).
    against_eugkm : Inequality
        Eq. 15: the error of the hybrid's round (Eq. 13) <= that of EUGkM's noise (Eq. 12).
    work : float
        N epsilon.
    threshold : float
        The least N epsilon for which Eq. 15 holds.
    """

    against_dplloyd: Inequality
    against_eugkm: Inequality
    work: float
    threshold: float

    @property
    def holds(self) -> bool:
        """Whether both hold."""
        return self.against_dplloyd.holds and self.against_eugkm.holds


def decide_hybrid(
    *,
    n: int,
    d: int,
    k: int,
    epsilon: float,
    rounds: int = DEFAULT_ROUNDS,
    theta: float = DEFAULT_THETA,
    norm: float | None = None,
) -> HybridDecision:
    """Compare the hybrid's error with DPLloyd's and EUGkM's: Eq. 14 and Eq. 15.

    Eq. 12 enters as the paper has it, with the M that the rule wants for all of epsilon, unrounded
    and uncapped: at that M the grid's noise and its bias balance, so it stands for both.

    Parameters
    ----------
    n, d, k, epsilon : int, int, int, float
        Rows (noisy or public), dimensions, clusters, what the method has to spend.
    rounds, theta : int, float
        t of the DPLloyd that Eq. 14 compares with; constant of the grid's rule.
    norm : float, optional
        sum_i o_i^2; by default `squared_norm`.
    """
    left = hybrid_mse(n=n, d=d, k=k, epsilon=epsilon, norm=norm)
    iterated = dplloyd_mse(n=n, d=d, k=k, epsilon=epsilon, rounds=rounds, norm=norm)
    grid = eugkm_variance(n=n, d=d, k=k, epsilon=epsilon, theta=theta)
    return HybridDecision(
        against_dplloyd=Inequality(left, iterated),
        against_eugkm=Inequality(left, grid),
        work=_work(n, epsilon),
        threshold=hybrid_threshold(d=d, k=k, theta=theta, norm=norm),
    )


def gkm_blocks(n: int) -> int:
    """Give the number of blocks of GkM, N^0.4 rounded down, at least 1."""
    near = round(math.pow(_rows(n), 0.4))
    # The float may round up to a whole number that is too large.
    return near - 1 if near**5 > _rows(n) ** 2 else near


def small_blocks(n: int, k: int) -> int:
    """Give the number of blocks of GkM-3K, N / (3 k) rounded down, at least 1."""
    _check(k=k)
    return max(_rows(n) // (3 * k), 1)


def gkm_mse(
    *, d: int, k: int, epsilon: float, blocks: int, width: float = 2.0, share: float = 0.5
) -> float:
    """Give the error that the noise of sample and aggregate causes in a centroid: Eq. 3.

    2 d b^2 with b = width k d / (l share epsilon): a row is in one of l blocks, so it moves each of
    the k d means by at most width / l. No formula is known for what k-means on blocks gets wrong.

    Parameters
    ----------
    d, k, epsilon, blocks : int, int, float, int
        Dimensions, clusters, the whole epsilon, l.
    width : float
        max - min of an output coordinate.
    share : float
        What the averages get of epsilon: half where the other half buys the output range.
    """
    _check(d=d, k=k, blocks=blocks)
    scale = width * k * d / (_work(blocks, epsilon) * _positive("share", share))
    return 2 * d * scale * scale


@dataclass(frozen=True)
class Prediction:
    """What to expect of a method.

    Parameters
    ----------
    method : str
        Its name in the registry; ``dplloyd --split optimal`` for that form.
    noise : float or None
        Squared error of a centroid by noise, in normalised units; None where no formula is known.
    bias : float or None
        Bound on its squared error by anything else; None where none is known.
    note : str
        What a reader should know.
    """

    method: str
    noise: float | None
    bias: float | None
    note: str


def predicted_errors(
    n: int,
    d: int,
    k: int,
    epsilon: float,
    *,
    rounds: int = DEFAULT_ROUNDS,
    theta: float = DEFAULT_THETA,
    max_cells: int = DEFAULT_MAX_CELLS,
    public_range: bool = False,
) -> list[Prediction]:
    """Predict the error of each private method, so that a user can choose before paying.

    Parameters
    ----------
    n, d, k, epsilon : int, int, int, float
        Rows as declared, dimensions, clusters, the whole budget; none of it buys N.
    rounds, theta, max_cells : int, float, int
        t of DPLloyd, constant of the grid's rule, and the cap on cells.
    public_range : bool
        Whether GkM is told its output range and has all of epsilon for the averages.
    """
    predictions = [
        *_predict_dplloyd(n, d, k, epsilon, rounds),
        *_predict_grids(n, d, k, epsilon, GridRule(theta=theta, max_cells=max_cells)),
        *_predict_gkm(n, d, k, epsilon, 1.0 if public_range else 0.5),
        Prediction("pgkm", None, None, "no formula for its error is known"),
    ]
    return [_marked_if_hopeless(prediction, d) for prediction in predictions]


def _predict_dplloyd(n: int, d: int, k: int, epsilon: float, rounds: int) -> list[Prediction]:
    best = optimal_rounds(n=n, d=d, k=k, epsilon=epsilon)
    equal = dplloyd_mse(n=n, d=d, k=k, epsilon=epsilon, rounds=rounds)
    optimal = optimal_mse(n=n, d=d, k=k, epsilon=epsilon, rounds=best)
    return [
        Prediction("dplloyd", equal, None, f"t = {rounds}; one start may end badly"),
        Prediction("dplloyd --split optimal", optimal, None, f"t = {best}; as above"),
    ]


def _predict_grids(n: int, d: int, k: int, epsilon: float, rule: GridRule) -> list[Prediction]:
    most = most_cells_per_dimension(d, k)
    whole, half = (
        rule.choose(dimension=d, count=_rows(n), epsilon=share, most=most)
        for share in (epsilon, epsilon / 2)
    )
    cells = whole.grid.size
    variance = grid_variance(n=n, d=d, k=k, epsilon=epsilon, cells=cells)
    eugkm = Prediction("eugkm", variance, grid_bias_bound(d=d, cells=cells), _side(whole))
    if not decide_hybrid(n=n, d=d, k=k, epsilon=epsilon, theta=rule.theta).holds:
        return [eugkm, replace(eugkm, method="hybrid", note="is eugkm here: no last round")]
    last = hybrid_mse(n=n, d=d, k=k, epsilon=epsilon)
    note = f"{_side(half)}, then one round of dplloyd"
    poor = "; so coarse a grid is a poor start" if half.grid.size <= k else ""
    return [eugkm, Prediction("hybrid", last, None, note + poor)]


def _side(choice: GridChoice) -> str:
    return f"m = {choice.grid.cells_per_dimension:,}" + (" (capped)" if choice.capped else "")


def _predict_gkm(n: int, d: int, k: int, epsilon: float, share: float) -> list[Prediction]:
    kinds = (("gkm", gkm_blocks(n), ""), ("gkm-3k", small_blocks(n, k), "--block-size 3k: "))
    predictions = []
    for name, blocks, option in kinds:
        error = gkm_mse(d=d, k=k, epsilon=epsilon, blocks=blocks, share=share)
        note = f"{option}l = {blocks:,}; plus errors of k-means on blocks"
        predictions.append(Prediction(name, error, None, note))
    return predictions


def _marked_if_hopeless(prediction: Prediction, d: int) -> Prediction:
    """Say so where a centroid is as far off as a random point is from the middle, d / 3."""
    known = [part for part in (prediction.noise, prediction.bias) if part is not None]
    if not known or sum(known) < d / 3:
        return prediction
    return replace(prediction, note=f"no better than random points; {prediction.note}")


def _rows(n: int) -> int:
    return min(max(n, 1), 1 << 63)


def _work(n: int, epsilon: float) -> float:
    """Give N epsilon, within a range in which no formula overflows or divides by zero."""
    return _within(_rows(n) * _positive("epsilon", epsilon))


def _within(value: float) -> float:
    return min(max(value, 1e-60), 1e60)


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0):
        raise ParameterError(f"{name}: got {value!r}; must be a positive, finite number")
    return value


def _check(**counts: int) -> None:
    for name, value in counts.items():
        if value < 1:
            raise ParameterError(f"{name}: got {value!r}; must be at least 1")
