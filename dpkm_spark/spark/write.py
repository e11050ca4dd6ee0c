"""Writing released values wherever Spark can write."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.errors import OutputError
from dpkm_spark.spark.frames import table_to_frame

#: What a run leaves under its output folder.
RESULTS = ("centroids", "synopsis", "run.json", "report.html")
_MARKER = "dpkm-started"


class OutputFolder:
    """The folder of one run, on any file system that Spark knows.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    path : str
        Path or URI; without a scheme it is the session's default file system.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path.rstrip("/") or path
        self._local: Path | None = None

    @property
    def path(self) -> str:
        """The folder's path, as given."""
        return self._path

    def child(self, name: str) -> str:
        """Give the path of a part of the output."""
        return f"{self._path}/{name}"

    def exists(self) -> bool:
        """Tell whether a result of an earlier run is at the path."""
        return any(self._found(self.child(name)) for name in RESULTS)

    def prepare(self, run_id: str) -> None:
        """Write a first file, so that a run cannot pay for a result that it cannot write.

        The marker is taken away again where the driver sees the folder.

        Raises
        ------
        OutputError
            If Spark cannot write there.
        """
        marker = table_to_frame(self._spark, pa.table({"value": pa.array([run_id])}))
        target = self.write_frame(_MARKER, marker.coalesce(1), "text")
        # Two paths: for a single one Spark looks for a streaming sink's metadata, and warns.
        files = self._spark.read.format("binaryFile").load([_literal(target)] * 2).inputFiles()
        if not files:
            raise OutputError(
                f"output: what Spark wrote to {self._path!r} cannot be found again; "
                "is it a folder that driver and executors share?"
            )
        if urlsplit(files[0]).scheme in ("", "file"):
            folder = Path(re.sub("^file:/+", "/", self._path))
            if (folder / _MARKER / "_SUCCESS").exists():
                shutil.rmtree(folder / _MARKER)
                self._local = folder

    def stale(self, written: Collection[str]) -> list[str]:
        """Name the parts of an earlier result that a run does not write; call after `prepare`.

        Raises
        ------
        OutputError
            If they cannot be removed: the DataFrame API deletes nothing on a remote file system.
        """
        found = [name for name in RESULTS if name not in written and self._found(self.child(name))]
        if found and self._local is None:
            raise OutputError(
                f"output: {self._path!r} holds {', '.join(found)} of an earlier run, which this "
                "one would leave beside its own results; remove it or use another folder"
            )
        return found

    def discard(self, names: Collection[str]) -> None:
        """Remove parts that `stale` found."""
        if self._local is None:
            return
        try:
            for name in names:
                target = self._local / name
                if target.is_dir():
                    shutil.rmtree(target)
                else:
                    target.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"output: cannot remove an old part: {error.strerror}") from None

    def write_frame(self, name: str, frame: DataFrame, kind: str) -> str:
        """Write a DataFrame of released values as a folder; replaces an earlier one.

        Raises
        ------
        OutputError
            If Spark cannot write there.
        """
        target = self.child(name)
        try:
            writer = frame.write.mode("overwrite").format(kind)
            (writer.option("header", "true") if kind == "csv" else writer).save(target)
        except Exception as error:
            failure = type(error).__name__
        else:
            return target
        raise OutputError(f"output: cannot write {target!r} as {kind} ({failure})")

    def write_text(self, name: str, text: str) -> str:
        """Write a text file: a plain file where the driver sees the folder, else through Spark.

        On another file system, or on a Connect server's disk, the name becomes a folder that
        holds the text in its one part, since the DataFrame API writes nothing else. `prepare`
        finds out which it is.
        """
        if self._local is not None:
            target = self._local / name
            try:
                if target.is_dir():
                    shutil.rmtree(target)
                target.write_text(text, encoding="utf-8")
            except OSError as error:
                raise OutputError(f"output: cannot write {name!r}: {error.strerror}") from None
            return self.child(name)
        lines = table_to_frame(self._spark, pa.table({"value": pa.array([text])}))
        return self.write_frame(name, lines.coalesce(1), "text")

    def _found(self, path: str) -> bool:
        try:
            # Listing is all this does, since the format's schema is fixed.
            _ = self._spark.read.format("binaryFile").load([_literal(path)] * 2).schema
        except Exception:
            return False
        return True


def _literal(path: str) -> str:
    """Escape what Spark's reader would take for a pattern; its writer takes paths literally."""
    return re.sub(r"([\\\[\]{}*?])", r"\\\1", path)
