"""OPERATIONS says what each error means, and STORE what the store's do."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from journal import errors

DOCS = Path(__file__).parents[2] / "docs"
ALL = [name for name, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, errors.JournalError)]


def section(page: str, heading: str) -> str:
    """A page's text from a heading on to the next one."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


SAID = section("OPERATIONS.md", "What each error means") + section("STORE.md", "Errors")


@pytest.mark.parametrize("name", ALL)
def test_an_error_is_in_the_pages_that_say_what_each_means(name: str) -> None:
    assert f"`{name}`" in SAID
