"""Exact budget arithmetic: every epsilon is a rational number, and shares add up exactly."""

from __future__ import annotations

import threading
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational

from dpkm_spark.errors import BudgetExceededError, EpsilonError

#: Below this the noise scale would come near what an int64 count can hold: at sensitivity 1 the
#: scale is at most 2^40, and the noise exceeds 2^62 with probability exp(-2^22).
MIN_EPSILON = Fraction(1, 1 << 40)
#: Above this the noise scale is no longer a number OpenDP can represent with care.
MAX_EPSILON = Fraction(1 << 50)
#: 1e-300 written out as a rational has 300 digits; more than this is an attack or a typing error.
_MAX_TEXT = 60

EpsilonLike = str | int | float | Decimal | Fraction


def parse_epsilon(value: EpsilonLike, name: str = "epsilon") -> Fraction:
    """Read an epsilon as the rational number its user wrote.

    A float is read through its shortest decimal form, so that ``0.1`` is 1/10 and not
    0.1000000000000000055; text may be a decimal (``0.1``, ``1e-3``) or a fraction (``1/3``).

    Parameters
    ----------
    value : str, int, float, Decimal or Fraction
        The epsilon.
    name : str
        What to call it in an error.

    Returns
    -------
    Fraction
        Between 2^-40 and 2^50.

    Raises
    ------
    EpsilonError
        If it is no number, not positive, infinite, NaN, or outside the range the noise can serve.
    """
    number = _to_fraction(value, name)
    if number <= 0:
        raise EpsilonError(f"{name}: got {_show(value)}; must be greater than 0")
    if number < MIN_EPSILON:
        raise EpsilonError(
            f"{name}: got {_show(value)}; must be at least 2^-40 (about 9.1e-13), "
            "or the noise would overflow 64-bit integers"
        )
    if number > MAX_EPSILON:
        raise EpsilonError(
            f"{name}: got {_show(value)}; must be at most 2^50 (about 1.1e15): more is no privacy"
        )
    return number


def _to_fraction(value: EpsilonLike, name: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal, Rational)):
        raise EpsilonError(f"{name}: got a {type(value).__name__}; must be a number")
    if isinstance(value, Rational):
        # int(), since numpy's integers are rationals as well, and theirs would overflow.
        return Fraction(int(value.numerator), int(value.denominator))
    # float() first: numpy's float64 is a float whose repr is not a number's.
    text = repr(float(value)) if isinstance(value, float) else str(value).strip()
    if len(text) > _MAX_TEXT:
        raise EpsilonError(f"{name}: a number of more than {_MAX_TEXT} characters")
    try:
        if "/" in text:
            return Fraction(text)
        decimal = Decimal(text)
    except (InvalidOperation, ValueError, ZeroDivisionError):
        raise EpsilonError(
            f"{name}: got {_show(value)}; must be a number such as 1, 0.5 or 1/3"
        ) from None
    if not decimal.is_finite():
        raise EpsilonError(f"{name}: got {_show(value)}; must be a finite number")
    # Fraction(Decimal("1e-99999999")) would build an integer of 10^8 digits.
    if decimal and not -400 < decimal.adjusted() < 400:
        raise EpsilonError(f"{name}: got {_show(value)}; must be between 2^-40 and 2^50")
    return Fraction(decimal)


def _show(value: object) -> str:
    try:
        text = str(value)
    except ValueError:  # Python prints no integer of more than 4,300 digits.
        return "a number of thousands of digits"
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "..."


class Budget:
    """An epsilon that is spent piece by piece and never overdrawn.

    Parameters
    ----------
    epsilon : Fraction
        The whole.

    Notes
    -----
    Pure epsilon-DP under sequential composition: the pieces add up. All arithmetic is on
    rationals, so a piece can neither vanish nor round away.
    """

    def __init__(self, epsilon: Fraction) -> None:
        self._total = parse_epsilon(epsilon)
        self._spent = Fraction(0)
        self._lock = threading.Lock()

    @property
    def total(self) -> Fraction:
        """The whole epsilon."""
        return self._total

    @property
    def spent(self) -> Fraction:
        """What has been charged so far."""
        return self._spent

    @property
    def remaining(self) -> Fraction:
        """What is left."""
        return self._total - self._spent

    def charge(self, epsilon: Fraction, what: str) -> None:
        """Take a piece, before anything is computed for it.

        Parameters
        ----------
        epsilon : Fraction
            The piece, greater than 0.
        what : str
            The query it is for; named in the error.

        Raises
        ------
        BudgetExceededError
            If less is left than asked for. Nothing is charged then.
        EpsilonError
            If the piece is not an epsilon that noise can serve.
        """
        piece = parse_epsilon(epsilon, f"epsilon of {what}")
        # Check and charge in one step, whatever threads share the budget.
        with self._lock:
            if piece > self.remaining:
                raise BudgetExceededError(
                    f"epsilon of {what}: asks for {float(piece):.6g}, "
                    f"but only {float(self.remaining):.6g} of {float(self._total):.6g} is left"
                )
            self._spent += piece
