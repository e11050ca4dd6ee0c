"""Finding the columns of a domain in a table's schema, and refusing types with no meaning."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpkm_spark.domain import Domain
from dpkm_spark.errors import ColumnError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_NUMERIC = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")
_HINTS = {
    "string": "cast it, for example try_cast(c AS double), or name its type with --input-schema",
    "boolean": "cast it to int",
    "date": "use unix_date(c)",
    "timestamp": "use unix_micros(c)",
    "timestamp_ntz": "use unix_micros(cast(c AS timestamp))",
    "struct": "select its fields as columns of their own",
}


@dataclass(frozen=True)
class InputColumn:
    """A column of the input table.

    Parameters
    ----------
    name : str
        Its name in the table.
    position : int
        Its place in the table's schema.
    vector : bool
        Whether it holds ML vectors.
    """

    name: str
    position: int
    vector: bool = False

    def array(self, renamed: str) -> Column:
        """Give the column, now called ``renamed``, as an array; null stays null."""
        from pyspark.ml.functions import vector_to_array  # noqa: PLC0415 - slow, rarely needed
        from pyspark.sql import functions as F  # noqa: N812, PLC0415

        column = F.col(renamed)
        # vector_to_array raises on null, which would tell that a null is there.
        return F.when(column.isNotNull(), vector_to_array(column)) if self.vector else column


def resolve_columns(frame: DataFrame, domain: Domain) -> list[InputColumn]:
    """Find every column of the domain in the schema.

    Parameters
    ----------
    frame : DataFrame
        Only its schema is looked at.
    domain : Domain
        Columns wanted, scalar or one packed.

    Returns
    -------
    list of InputColumn

    Raises
    ------
    ColumnError
        If a column is missing, ambiguous, or of a type that has no numeric meaning.
    """
    schema = frame.schema
    names = [field.name for field in schema.fields]
    found = []
    for wanted in domain.columns:
        position = _position(wanted, names)
        kind = schema.fields[position].dataType
        _check_type(names[position], kind, packed=domain.packed)
        vector = kind.typeName() == "vectorudt"
        found.append(InputColumn(names[position], position, vector))
    return found


def _position(wanted: str, names: list[str]) -> int:
    """Find a name exactly, else by case-insensitive match if only one fits."""
    exact = [i for i, name in enumerate(names) if name == wanted]
    loose = exact or [i for i, name in enumerate(names) if name.lower() == wanted.lower()]
    if len(loose) == 1:
        return loose[0]
    if loose:
        raise ColumnError(f"columns: {wanted!r} is ambiguous: the table has it {len(loose)} times")
    close = difflib.get_close_matches(wanted, names, n=1)
    guess = f"; did you mean {close[0]!r}?" if close else "."
    shown = ", ".join(map(repr, names[:30])) + (", ..." if len(names) > 30 else "")
    raise ColumnError(f"columns: no {wanted!r} in the table{guess} It has: {shown or 'none'}")


def _check_type(name: str, kind: DataType, *, packed: bool) -> None:
    shown = kind.simpleString()
    if packed:
        element = getattr(kind, "elementType", None)
        if kind.typeName() == "vectorudt" or (element is not None and _is_numeric(element)):
            return
        raise ColumnError(
            f"columns: {name!r} has type {shown}; a single column with several bounds must be "
            "an array of numbers or an ML vector"
        )
    if _is_numeric(kind):
        return
    if kind.typeName() in ("array", "vectorudt"):
        hint = "give one bound per entry, or --dimensions, to cluster on its entries"
    else:
        hint = _HINTS.get(kind.typeName(), "cast it to a numeric type")
    raise ColumnError(f"columns: {name!r} has type {shown}, which has no numeric meaning; {hint}")


def _is_numeric(kind: DataType) -> bool:
    return kind.simpleString().split("(")[0] in _NUMERIC
