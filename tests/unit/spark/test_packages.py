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
from loaders.spark.session.packages import SparkPart, installed_pyspark, not_imported, packages
from tests.extras import admits

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"


def test_delta_lake_is_the_one_that_is_built_for_the_version_of_pyspark() -> None:
    assert packages("4.2.0", {SparkPart.DELTA}) == packages("4.2.1", {SparkPart.DELTA}) == (DELTA,)


@pytest.mark.parametrize("version", ["3.4.1", "3.5.9", "4.1.1"])
def test_an_old_pyspark_is_refused_with_the_command_that_mends_it(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"PySpark {version} is installed.*: pip install 'kafka-journal\[spark\]'$"):
        packages(version, ())


def test_a_pyspark_without_a_delta_lake_of_its_own_does_all_else() -> None:
    assert packages("4.3.0", ()) == ()
    with pytest.raises(ConfigError, match=r"no Delta Lake for it: pip install 'pyspark==4\.2\.\*', or keep"):
        packages("4.3.0", {SparkPart.DELTA})


def test_the_extra_admits_no_pyspark_that_is_refused() -> None:
    versions = ("3.4.1", "3.5.9", "4.1.1", "4.2.0", "4.2.1", "4.3.0", "5.0.0")
    assert [version for version in versions if admits("spark", version)] == ["4.2.0", "4.2.1", "4.3.0"]


def test_the_installed_pyspark_is_one_that_packages_are_matched_to() -> None:
    assert packages(installed_pyspark(), frozenset(SparkPart))


def test_the_command_prints_what_spark_submit_takes() -> None:
    shown = CliRunner().invoke(app, ["spark", "packages", "--delta"])
    coordinates = packages(installed_pyspark(), {SparkPart.DELTA})
    assert (shown.exit_code, shown.stdout) == (0, ",".join(coordinates) + "\n")
    as_json = CliRunner().invoke(app, ["spark", "packages", "--delta", "--json"])
    assert json.loads(as_json.stdout) == {"packages": list(coordinates)}


def test_the_readers_do_not_load_faust() -> None:
    program = (
        "import sys, loaders.spark.read.readers, loaders.spark.tables.store_columns, loaders.spark.session.session\n"
        "print([name for name in ('aiokafka', 'faust', 'mode', 'streams') if name in sys.modules])"
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
    said = said_without("pyspark.errors")
    installed = f"PySpark {installed_pyspark()} is installed, and Python {platform.python_version()} cannot import it"
    assert said.startswith(f"{installed} (ModuleNotFoundError: ")
    assert said.endswith("): pip install 'kafka-journal[spark]' gets what it needs")
    audited = "from journal.cli.verify.by_spark import audited; audited(None, None, None, 1)"
    assert said_without("pyspark.errors", audited) == said


def test_an_older_pyspark_that_lacks_what_is_imported_is_not_said_to_be_of_another_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: "3.3.4")
    with pytest.raises(ConfigError, match=r"PySpark 3\.3\.4 is installed, and 4\.2 or newer is needed"):
        not_imported(ModuleNotFoundError("No module named 'pyspark.errors'"))
