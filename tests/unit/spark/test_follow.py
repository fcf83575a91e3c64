"""A stream of windows begins with the micro-batch that Spark's checkpoint says."""

from __future__ import annotations

import pytest

from loaders.spark.follow import coming_batch
from tests.support.spark_files import FilesInMemory


@pytest.mark.parametrize(
    ("begun", "done", "coming"),
    [([], [], None), ([0], [], 0), ([0], [0], 1), ([8, 9, 10], [8, 9], 10), ([8, 9, 10], [8, 9, 10], 11)],
)
def test_the_batch_that_comes_is_the_one_that_was_cut_off_or_the_next_one(
    begun: list[int], done: list[int], coming: int | None
) -> None:
    of_spark = [".0.crc", ".11.tmp"]
    names = [f"checkpoint/offsets/{each}" for each in [*of_spark, *begun]]
    names += [f"checkpoint/commits/{each}" for each in [*of_spark, *done]]
    assert coming_batch(FilesInMemory("checkpoint/metadata", *names)) == coming
