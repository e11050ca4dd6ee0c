"""Where the rows are: a description that needs no Spark to be written down."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_BY_SUFFIX = {
    ".parquet": "parquet", ".csv": "csv", ".csv.gz": "csv", ".tsv": "csv", ".json": "json",
    ".jsonl": "json", ".ndjson": "json", ".json.gz": "json", ".orc": "orc", ".avro": "avro",
}  # fmt: skip


@dataclass(frozen=True)
class InputSource:
    """Where the rows are.

    Parameters
    ----------
    location : str
        A path or URI that Spark reads, or the name of a catalog table.
    format : str, optional
        ``parquet``, ``csv``, ``json``, ``orc``, ``table`` for a catalog table, or any other format
        the session knows. By default from the path's ending, else parquet.
    options : mapping of str to str
        Options for Spark's reader.
    schema : str, optional
        Column types as DDL, for files that carry none.
    """

    location: str
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    @property
    def resolved_format(self) -> str:
        """The format as given, or by the path's ending."""
        if self.format:
            return self.format.lower()
        path = self.location.rstrip("/").lower()
        found = [kind for suffix, kind in _BY_SUFFIX.items() if path.endswith(suffix)]
        return found[0] if found else "parquet"

    @property
    def shown(self) -> str:
        """The location as it may be published: without password, signature or token."""
        return redact_uri(self.location)


def redact_uri(text: str) -> str:
    """Drop a user's password and the query part, which can hold a signature, from a URI."""
    if "://" not in text:
        return text
    return re.sub(r"(?<=://)[^/@]*:[^/@]*@", "", text).partition("?")[0]
