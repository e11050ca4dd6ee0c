"""Writing released values wherever Spark can write."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dpkm_spark.errors import OutputError
from dpkm_spark.spark.frames import table_to_frame


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

    @property
    def path(self) -> str:
        """The folder's path, as given."""
        return self._path

    def child(self, name: str) -> str:
        """Give the path of a part of the output."""
        return f"{self._path}/{name}"

    def exists(self) -> bool:
        """Tell whether there is anything at the path."""
        try:
            # Listing is all this does: the format's schema is fixed.
            _ = self._spark.read.format("binaryFile").load(self._path).schema
        except Exception:
            return False
        return True

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
        holds the text in its one part, since the DataFrame API writes nothing else.
        """
        folder = self._local_folder()
        if folder is not None:
            try:
                (folder / name).write_text(text, encoding="utf-8")
            except OSError as error:
                raise OutputError(f"output: cannot write {name!r}: {error.strerror}") from None
            return str(folder / name)
        lines = table_to_frame(self._spark, pa.table({"value": pa.array([text])}))
        return self.write_frame(name, lines.coalesce(1), "text")

    def _local_folder(self) -> Path | None:
        """Find the folder on the driver's own disk, where Spark has just written to it."""
        part = self.child("centroids")
        files = self._spark.read.format("binaryFile").load(part).inputFiles()
        address = urlsplit(files[0]) if files else urlsplit(part)
        if address.scheme not in ("", "file"):
            return None
        folder = Path(re.sub("^file:/+", "/", self._path))
        return folder if os.path.exists(folder / "centroids" / "_SUCCESS") else None
