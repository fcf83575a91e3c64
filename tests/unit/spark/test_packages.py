"""Packages are matched to the PySpark that is there; what has none says so."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib import metadata

import pytest
from typer.testing import CliRunner

from journal.cli.main import app
from journal.errors import ConfigError
from loaders.spark.session.packages import READING, SparkPart, installed_pyspark, not_imported, packages
from tests.extras import admits


def test_spark_s_own_packages_are_of_the_version_of_pyspark() -> None:
    assert packages("3.4.1") == (
        "org.apache.spark:spark-sql-kafka-0-10_2.12:3.4.1",
        "org.apache.spark:spark-protobuf_2.12:3.4.1",
    )


def test_delta_lake_is_the_one_that_is_built_for_the_version_of_pyspark() -> None:
    delta = "io.delta:delta-core_2.12:2.4.0"
    assert packages("3.4.1", {SparkPart.DELTA}) == (delta,)
    assert packages("3.4.1", READING | {SparkPart.DELTA}) == (*packages("3.4.1"), delta)


@pytest.mark.parametrize("version", ["3.4.4", "3.5.9", "4.0.1"])
def test_a_pyspark_that_nothing_is_matched_to_is_refused_with_the_command_that_mends_it(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"PySpark {version} is installed.*: pip install pyspark==3\.4\.1$"):
        packages(version)


def test_the_extra_admits_only_a_pyspark_that_packages_are_matched_to() -> None:
    assert [version for version in ("3.4.0", "3.4.1", "3.4.2", "3.4.4", "3.5.0") if admits("spark", version)] == [
        "3.4.1"
    ]


def test_the_installed_pyspark_is_one_that_packages_are_matched_to() -> None:
    assert packages(installed_pyspark(), frozenset(SparkPart))


def test_the_command_prints_what_spark_submit_takes() -> None:
    shown = CliRunner().invoke(app, ["spark", "packages", "--delta"])
    coordinates = packages(installed_pyspark(), frozenset(SparkPart))
    assert (shown.exit_code, shown.stdout) == (0, ",".join(coordinates) + "\n")
    as_json = CliRunner().invoke(app, ["spark", "packages", "--delta", "--json"])
    assert json.loads(as_json.stdout) == {"packages": list(coordinates)}


def test_the_readers_load_neither_kafka_clients_nor_faust() -> None:
    program = (
        "import sys, loaders.spark.read.readers, loaders.spark.tables.store_columns, loaders.spark.session.session\n"
        "print([name for name in ('confluent_kafka', 'aiokafka', 'faust', 'mode', 'streams') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def said_without(module: str, statement: str = "import loaders.spark.session.session") -> str:
    """The error of a process that cannot import a module, at a statement."""
    program = (
        "import sys, typing\n"
        f"sys.modules['{module}'] = None\n"
        "from journal.errors import MissingExtraError\n"
        "try:\n"
        f"    {statement}\n"
        "except MissingExtraError as error:\n"
        "    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


@pytest.mark.parametrize("module", ["pyspark", "py4j"])
def test_without_pyspark_the_error_says_how_to_get_it(module: str) -> None:
    assert said_without(module) == "Spark needs PySpark: pip install 'kafka-journal[spark]'"


def test_a_pyspark_that_this_python_cannot_import_is_not_said_to_be_missing() -> None:
    """PySpark imports `typing.io`, which Python 3.13 no longer has."""
    said = said_without("typing.io")
    installed = f"PySpark {installed_pyspark()} is installed, and Python {platform.python_version()} cannot import it"
    assert said.startswith(f"{installed} (ModuleNotFoundError: ")
    assert "typing.io" in said
    assert said.endswith("): PySpark 3.4 takes Python 3.12 or older")
    assert "pip install" not in said
    audited = "from journal.cli.verify.by_spark import audited; audited(None, None, None, 1)"
    assert said_without("typing.io", audited) == said


def test_an_older_pyspark_that_lacks_what_is_imported_is_not_said_to_be_of_another_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "3.3.4")
    with pytest.raises(ConfigError, match=r"PySpark 3\.3\.4 is installed, and no packages"):
        not_imported(ModuleNotFoundError("No module named 'pyspark.errors'"))
