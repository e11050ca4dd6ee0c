"""How methods come to know N: it is declared, or a share of the budget buys a noisy one."""

from __future__ import annotations

from fractions import Fraction

from dpkm_spark.algorithms.algorithm import PlannedQuery
from dpkm_spark.algorithms.notify import Notify
from dpkm_spark.private_table import PrivateTable


class CountParameters:
    """What the parameters of methods that may use N have in common.

    Parameters
    ----------
    public_count : int, optional
        N, if the user declares it public; then no budget goes to it.
    count_share : Fraction
        Share of epsilon for a noisy N, where it is needed and not public.
    """

    public_count: int | None
    count_share: Fraction

    @property
    def needs_count(self) -> bool:
        """Whether the method depends on N."""
        return True

    @property
    def buys_count(self) -> bool:
        """Whether a share of the budget goes to a noisy N."""
        return self.needs_count and self.public_count is None

    def count_epsilon(self, epsilon: Fraction) -> Fraction:
        """Give the share for a noisy N, possibly 0."""
        # Fraction() for a caller who gave a float: the shares must still add up exactly.
        return epsilon * Fraction(self.count_share) if self.buys_count else Fraction(0)

    def count_plan(self, epsilon: Fraction) -> tuple[PlannedQuery, ...]:
        """Give the query for N, if one will be asked."""
        bought = self.count_epsilon(epsilon)
        return (PlannedQuery("count", bought, 1),) if bought else ()


def learn_count(
    table: PrivateTable, parameters: CountParameters, epsilon: Fraction, notify: Notify
) -> int | None:
    """Give N: as declared, or noisy for its share of epsilon; None where it is neither."""
    if not parameters.buys_count:
        return parameters.public_count
    notify("asking for a noisy number of rows")
    return table.noisy_count(parameters.count_epsilon(epsilon))
