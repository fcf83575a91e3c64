"""Python's workers, forked from a process that has imported what they need, because each import takes seconds.

Spark starts this module as its setting `spark.python.daemon.module` says.
"""

from __future__ import annotations

from pyspark.daemon import manager

import loaders.spark.read.data_source
import loaders.spark.read.range_rows
import loaders.spark.session.wire  # noqa: F401  # the imports are what this module is for

if __name__ == "__main__":
    manager()
