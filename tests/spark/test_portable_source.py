"""The package uses nothing of Spark that Connect and serverless platforms do not have."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

import dpkm_spark

FILES = sorted(Path(dpkm_spark.__file__).parent.rglob("*.py"))
FORBIDDEN = re.compile(
    r"\. (rdd|_jdf|_jvm|_jsc|_sc|_jsparkSession|sparkContext|toPandas|broadcast|foreachPartition)\b"
    r"|\b(SparkContext|SQLContext|pandas_udf|udf)\b"
    # On Connect a DataFrame is of another class.
    r"|\bisinstance \( \w+ , (DataFrame|SparkSession|Column)\b"
    # Rounding on doubles goes through BigDecimal, at ten times the cost.
    r"|\bF \. round\b|\brand \("
)


def code_of(source: str) -> str:
    """Give the tokens without comments and docstrings, which may name what is forbidden."""
    skipped = (tokenize.COMMENT, tokenize.STRING, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return " ".join(token.string for token in tokens if token.type not in skipped)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_classic_only_api_is_used(path: Path) -> None:
    found = FORBIDDEN.search(code_of(path.read_text(encoding="utf-8")))
    assert found is None, f"{path.name}: {found}"


@pytest.mark.parametrize(
    "line",
    ["df.rdd.map(f)", "spark.sparkContext", "spark._jvm.x", "isinstance(df, DataFrame)"],
)
def test_the_scan_sees_what_it_looks_for(line: str) -> None:
    assert FORBIDDEN.search(code_of(line))
    assert not FORBIDDEN.search(code_of(f"x = 1  # {line}"))
