"""Errors stand in one file, and each says there what it means."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from journal import errors
from tests.unit.test_layers import modules

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))
ALL = {
    name: each for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.JournalError)
}


def bases_outside() -> Iterator[tuple[str, str]]:
    """Each class of another file, and the name of each of its bases."""
    for module, file in modules().items():
        if module == errors.__name__:
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                yield from ((f"{module}.{node.name}", ast.unparse(base).rpartition(".")[2]) for base in node.bases)


def test_every_error_says_what_it_means() -> None:
    assert [name for name, each in ALL.items() if not each.__dict__["__doc__"]] == []


def test_the_documents_name_only_errors_that_there_are() -> None:
    named = {name for page in PAGES for name in re.findall(r"\b([A-Z]\w+Error)\b", page.read_text(encoding="utf-8"))}
    assert {name for name in named if not hasattr(builtins, name)} - set(ALL) == set()


def test_every_error_of_the_project_stands_in_one_file() -> None:
    assert [(name, base) for name, base in bases_outside() if base in ALL] == []
