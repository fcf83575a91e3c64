"""Programs import from `journal`, `loaders` and `streams` themselves, and pay only for the names that they ask for."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("journal", "loaders", "streams")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/**/*.py"))
DEEP_IMPORT = re.compile(r"^\W*(?:from|import) (?:journal|loaders|streams)\..*", re.MULTILINE)
IMPORT = re.compile(r"\bfrom (journal|loaders|streams) import ([\w, ]+)")
SLOW_TO_IMPORT = ("confluent_kafka", "faust", "google", "pydantic", "pyspark", "rocksdict", "typer")


def imported_names() -> Iterator[tuple[str, str, str]]:
    for file in (*DOCUMENTS, *EXAMPLES):
        for package, names in IMPORT.findall(file.read_text()):
            yield from ((file.name, package, name.strip()) for name in names.split(","))


@pytest.mark.parametrize("file", [*DOCUMENTS, *EXAMPLES], ids=lambda file: file.name)
def test_documents_and_examples_import_from_no_deeper_path(file: Path) -> None:
    assert DEEP_IMPORT.findall(file.read_text()) == []


def test_every_name_that_documents_and_examples_import_is_public() -> None:
    found = list(imported_names())
    assert {package for _, package, _ in found} == set(PACKAGES)
    assert [each for each in found if each[2] not in import_module(each[1]).__all__] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_imported_and_is_listed(package: str) -> None:
    module = import_module(package)
    names = module.__all__
    assert [name for name in names if getattr(module, name, None) is None] == []
    assert set(names) <= set(dir(module))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_public_name_is_a_module_too(package: str) -> None:
    """Importing such a module would put it in the name's place."""
    places = {path.stem for path in (ROOT / package).iterdir()}
    assert places & set(import_module(package).__all__) <= {"errors"}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_public_is_an_attribute_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nonsense'"):
        _ = import_module(package).nonsense


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_imports_nothing_slow(package: str) -> None:
    command = [sys.executable, "-c", f"import sys, {package}; print(*sys.modules)"]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.split()
    assert [module for module in loaded if module.partition(".")[0] in SLOW_TO_IMPORT] == []


def test_no_module_of_ours_imports_a_public_name() -> None:
    """Imports inside the tree name the module itself, so that test_layers.py sees where they go."""
    found = [
        f"{file}:{node.lineno}"
        for package in (*PACKAGES, "bench")
        for file in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module in PACKAGES
        and not all((ROOT / node.module / name.name).is_dir() or name.name == "errors" for name in node.names)
    ]
    assert found == []
