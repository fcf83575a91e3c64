"""Times beyond what every zone's timestamps hold are null."""

from __future__ import annotations

from loaders.spark.read.row_decoding import MOMENTS_END_MS, moment_us


def test_a_time_beyond_what_a_timestamp_holds_is_null() -> None:
    assert [moment_us(ms) for ms in (-1, 0, MOMENTS_END_MS, 2**63 - 1)] == [None] * 4
    assert [moment_us(ms) for ms in (1, MOMENTS_END_MS - 1)] == [1000, (MOMENTS_END_MS - 1) * 1000]
