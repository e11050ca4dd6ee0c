"""Which code ran: versions and commit, for `run.json` and the report."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from importlib import metadata
from importlib.resources import files
from pathlib import Path

from dpkm_spark import __version__

_LIBRARIES = ("pyspark", "opendp", "numpy", "pyarrow")


def versions() -> dict[str, str]:
    """Give the versions of this package, its commit, Python and the libraries that matter."""
    found = {"dpkm-spark": __version__, "commit": commit(), "python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            # A cluster's own Spark brings pyspark as files, without package metadata.
            found[name] = "unknown"
    return found


def commit() -> str:
    """Give the commit: from the launcher, from the shipped package, or from the checkout."""
    if os.environ.get("DPKM_COMMIT"):
        return os.environ["DPKM_COMMIT"]
    shipped = files("dpkm_spark") / "_commit.txt"
    if shipped.is_file():
        return shipped.read_text(encoding="utf-8").strip()
    root = Path(__file__).resolve().parents[2]
    git = shutil.which("git")
    if git is None or not (root / ".git").exists():
        return "unknown"
    command = [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    # Arguments are constants and our own folder.
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return result.stdout.strip() or "unknown"
