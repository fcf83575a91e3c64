"""Installs each extra in an empty environment by the ranges of pyproject.toml, not by the pins, and runs its check.

python -m tests.extras              # minutes
python -m tests.extras --resolve    # only which versions the ranges lead to, and whether Spark has packages
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from packaging.requirements import Requirement

from loaders.spark.session.packages import require_supported

ROOT = Path(__file__).parents[1]
FLIGHTS = (
    "import journal.cli.flights.processes; from journal.cli.flights.data import find_flights; print(find_flights())"
)
CHECKS = {
    "spark": ["kafka-journal", "spark", "check"],
    "connect": ["python", "-c", "import pyspark.sql.connect.session"],
    "demo": ["python", "-c", FLIGHTS],
    "dev": ["pytest", "--version"],
}
"""The command that shows of an extra that it works."""


def extras() -> dict[str, list[Requirement]]:
    """The extras of pyproject.toml, with what they require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {name: [Requirement(each) for each in needs] for name, needs in project["optional-dependencies"].items()}


def admits(extra: str, version: str) -> bool:
    """Whether the first requirement of an extra admits a version."""
    return extras()[extra][0].specifier.contains(version)


def resolve(extra: str) -> None:
    """Print what the ranges of an extra lead to now. Raises ConfigError for a PySpark that is refused."""
    asked = ["--dry-run", "--ignore-installed", "--no-deps", *map(str, extras()[extra])]
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        _pip("install", "--report", report.name, *asked)
        found = {each["metadata"]["name"]: each["metadata"]["version"] for each in json.load(report)["install"]}
    print(extra, *(f"{name}=={version}" for name, version in found.items()))
    if "pyspark" in found:
        require_supported(found["pyspark"])


def check(extra: str) -> None:
    """Install an extra in an empty environment, and run its check there."""
    with tempfile.TemporaryDirectory() as name:
        venv.create(name)
        _pip("--python", f"{name}/bin/python", "install", f"{ROOT}[{extra}]")
        command, *arguments = CHECKS[extra]
        subprocess.run([f"{name}/bin/{command}", *arguments], check=True, cwd=name)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


if __name__ == "__main__":
    for extra in CHECKS:
        if "--resolve" in sys.argv[1:]:
            resolve(extra)
        else:
            check(extra)
