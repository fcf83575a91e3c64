"""Files below a path, by Hadoop's file systems. Spark's jobs use them for notes beside their data.

Spark has no public function for files, so this takes those of its JVM, which Spark Connect does not show.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from journal.errors import ConfigError


class Files:
    """The files below a path, in the file system that Spark itself would use. Raises ConfigError in Spark Connect."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        if not isinstance(spark, SparkSession):
            raise ConfigError(
                f"{path} is kept with the files of Spark's own JVM, which Spark Connect does not show: run this in a "
                "classic session (spark-submit, or make_session)"
            )
        self._root = path.rstrip("/")
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()
        self._gateway: Any = spark.sparkContext._gateway

    def place(self, name: str) -> str:
        return f"{self._root}/{name}"

    def exists(self, name: str) -> bool:
        path = self._path(name)
        return bool(path.getFileSystem(self._conf).exists(path))

    def names(self, directory: str) -> list[str]:
        path = self._path(directory)
        files = path.getFileSystem(self._conf)
        return [status.getPath().getName() for status in files.listStatus(path)] if files.exists(path) else []

    def text(self, name: str) -> str:
        path = self._path(name)
        stream = path.getFileSystem(self._conf).open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def told(self, name: str, *keys: str) -> Mapping[str, Any]:
        """The JSON object in a file, which must have these keys. Raises ConfigError for any other content; a power cut
        may leave a file empty."""
        try:
            found = json.loads(self.text(name))
            if isinstance(found, dict) and found.keys() >= set(keys):
                return found
        except ValueError:  # the error that is raised below covers this case
            pass
        raise ConfigError(
            f"{self.place(name)} is empty or damaged, as a power cut leaves a file: delete {self.place('')} and keep "
            "the tables anew"
        )

    def write_new(self, name: str, text: str) -> None:
        """Write a file that appears whole. No file of that name may exist."""
        directory, _, base = name.rpartition("/")
        aside, final = self._path(f"{directory}/.{base}.{secrets.token_hex(4)}"), self._path(name)
        stream = aside.getFileSystem(self._conf).create(aside, True)
        try:
            stream.write(text.encode())
            stream.hsync()
        finally:
            stream.close()
        options = self._gateway.new_array(getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename"), 0)
        context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(final.toUri(), self._conf)
        context.rename(aside, final, options)

    def delete(self, name: str) -> None:
        path = self._path(name)
        path.getFileSystem(self._conf).delete(path, True)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{name}")
