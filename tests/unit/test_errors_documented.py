"""Errors stand in one file, and in one table that says what each means."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from journal import errors
from tests.unit.test_layers import modules

PAGE = Path(__file__).parents[2] / "docs" / "OPERATIONS.md"
ALL = {name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.JournalError)}


def section(heading: str) -> str:
    """A page's text from a heading on to the next one."""
    return PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def named(text: str) -> set[str]:
    return {name for name in re.findall(r"`(\w+Error)`", text) if not hasattr(builtins, name)}


def bases_outside() -> Iterator[tuple[str, str]]:
    """Each class of another file, and the name of each of its bases."""
    for module, file in modules().items():
        if module == errors.__name__:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                yield from ((f"{module}.{node.name}", ast.unparse(base).rpartition(".")[2]) for base in node.bases)


def test_the_table_of_errors_has_every_error() -> None:
    assert ALL - named(section("What each error means")) == set()


def test_the_table_of_errors_has_no_other_name() -> None:
    assert named(section("What each error means")) - ALL == set()


def test_every_error_of_the_project_stands_in_one_file() -> None:
    assert [(name, base) for name, base in bases_outside() if base in ALL] == []
