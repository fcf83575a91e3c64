"""Whether a command loads Delta Lake to read an archive goes by how its place is spelled, and by what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.cli.spark.session import further_parts, may_be_in_delta


@pytest.mark.parametrize("elsewhere", ["hdfs:///a", "hdfs:/a", "s3a://bucket/a", "S3A://bucket", "wasb://a@b/c"])
def test_an_archive_elsewhere_may_be_in_delta_lake(elsewhere: str) -> None:
    assert may_be_in_delta(elsewhere)


@pytest.mark.parametrize("spelling", ["{}", "{}/", "file:{}", "file://{}", "file://localhost{}"])
def test_an_archive_in_this_machine_s_files_is_in_delta_lake_if_its_log_is_there(tmp_path: Path, spelling: str) -> None:
    place = spelling.format(tmp_path)
    assert not may_be_in_delta(place)
    tmp_path.joinpath("frames", "_delta_log").mkdir(parents=True)
    assert not may_be_in_delta(place)
    tmp_path.joinpath("table", "_delta_log").mkdir(parents=True)
    assert may_be_in_delta(place)


def test_a_name_without_a_directory_is_one_of_this_machine_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not may_be_in_delta("archive")
    tmp_path.joinpath("archive", "table", "_delta_log").mkdir(parents=True)
    assert may_be_in_delta("archive")


def test_what_spark_submit_has_started_has_what_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    assert further_parts("s3a://bucket/archive") == frozenset()
