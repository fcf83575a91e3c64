"""The names, links and commands that the documents state are those of the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from journal.cli.main import COMMANDS, load_command

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = ["journal", "loaders", "streams", "bench", "examples", "tests", "deploy", "Makefile", "pyproject.toml"]
FOREIGN_SECTIONS = {"ROUTING.md": "Coming from the JMS Bridge"}
"""Sections about other products, whose names this tree does not have."""

FOREIGN = frozenset(
    [
        "ANONYMOUS",
        "CONCURRENT_TRANSACTIONS",
        "EndTxn",
        "IllegalStateException",
        "LimitNOFILE",
        "OPTIMIZE",
        "TimeoutStopSec",
        "VACUUM",
        "_jmsbr_JOURNAL_hops",
        "addFile",
        "dirty_bytes",
        "eve",
        "europe",
        "logRetentionDuration",
        "manual_wal_flush",
        "politics",
        "sport",
        "ulimit",
        "usa",
    ]
)
"""Names of Kafka, librdkafka, Spark, Delta Lake and operating systems, and values of examples."""

FOREIGN_MESSAGES = {"while sending txn marker", "verify", "--node"}
"""Texts of brokers, and commands, in the table of messages."""

PRODUCT = ["journal", "loaders", "streams"]

TEXTS = {"", ".py", ".proto", ".toml", ".json", ".html"}
"""Endings of the files whose words count as names of the tree."""

SECTIONS_LISTED_FROM = 200
"""Lines from which a document lists its sections at its beginning."""

page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)


def own_text(path: Path) -> str:
    """A page without its sections about other products."""
    text = path.read_text(encoding="utf-8")
    heading = FOREIGN_SECTIONS.get(path.name)
    if heading is None:
        return text
    before, _, rest = text.partition(f"\n## {heading}\n")
    return before + "\n" + rest.partition("\n## ")[2]


def prose(path: Path) -> str:
    return re.sub(r"^```.*?^```", "", own_text(path), flags=re.DOTALL | re.MULTILINE)


def code_lines(path: Path) -> Iterator[str]:
    """Lines of code blocks and spans in back quotes. A line that ends in a backslash is joined with the next one."""
    text = own_text(path).replace("\\\n", " ")
    yield from re.findall(r"^    (.*)$", text, flags=re.MULTILINE)
    for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", prose(path))


@cache
def words_of_tree() -> frozenset[str]:
    """Every word of the sources, without this file's."""
    found: set[str] = set()
    for source in SOURCES:
        place = ROOT / source
        for path in place.rglob("*") if place.is_dir() else [place]:
            if path.suffix in TEXTS and path.is_file() and path != Path(__file__):
                found |= set(re.findall(r"\w+", path.read_text(encoding="utf-8", errors="ignore")))
    return frozenset(found)


@cache
def paths_of_tree() -> frozenset[str]:
    """Relative paths and their ends, so that `wal/writer.py` stands for `journal/wal/writer.py`."""
    found: set[str] = set()
    for source in [*SOURCES, "docs", "README.md"]:
        place = ROOT / source
        for path in [place, *place.rglob("*")]:
            parts = path.relative_to(ROOT).parts
            found |= {"/".join(parts[first:]) for first in range(len(parts))}
    return frozenset(found)


def is_known(word: str) -> bool:
    """Whether a word is one of the tree or a foreign one; prefixes of metrics and variables are ignored."""
    bare = re.sub(r"^(KAFKA_JOURNAL_|kafka_journal_|node_|source_|ce_|_)+", "", word)
    return bool({word, bare, bare.lower()} & (words_of_tree() | FOREIGN))


@page
def test_each_name_in_back_quotes_is_in_the_tree(path: Path) -> None:
    unknown: set[str] = set()
    for span in re.findall(r"`([^`]+)`", prose(path)):
        if re.fullmatch(r"[\w./-]+\.py|(journal|loaders|streams|bench|tests|docs|deploy|examples)/[\w./-]*", span):
            if span.rstrip("/") not in paths_of_tree():
                unknown.add(span)
        elif re.fullmatch(r"\.?[A-Za-z_][\w.]*(\(.*\))?", span):
            words = re.findall(r"[A-Za-z_]\w{2,}", span.partition("(")[0])
            unknown |= {word for word in words if not is_known(word)}
    assert sorted(unknown) == []


@pytest.mark.parametrize("path", [*PAGES, *(ROOT / "deploy").rglob("build")], ids=lambda path: path.name)
def test_each_import_of_an_example_or_a_script_is_there(path: Path) -> None:
    missing = []
    imports = re.findall(
        r"\bfrom ((?:journal|loaders|streams)[\w.]*) import ([\w, ]+)", path.read_text(encoding="utf-8")
    )
    for module, names in imports:
        place = ROOT.joinpath(*module.split("."))
        file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        there = set(re.findall(r"\w+", file.read_text(encoding="utf-8"))) if file.exists() else set()
        missing += [f"{module}.{name}" for name in names.split(", ") if name.strip() not in there]
    assert missing == []


def anchor(heading: str) -> str:
    """The anchor of a heading on the pages of a repository."""
    return re.sub(r"[^\w -]", "", heading.replace("`", "").lower()).replace(" ", "-")


@page
def test_each_link_leads_to_a_place_that_is_there(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", own_text(path)):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        place = path.parent / file if file else path
        if not place.exists():
            broken.append(target)
        elif heading:
            headings = re.findall(r"^#+ (.*)$", place.read_text(encoding="utf-8"), flags=re.MULTILINE)
            if heading not in {anchor(each) for each in headings}:
                broken.append(target)
    assert broken == []


@page
def test_a_long_page_lists_its_sections_at_its_beginning(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if text.count("\n") <= SECTIONS_LISTED_FROM:
        return
    beginning, *rest = text.split("\n## ")
    assert [one for each in rest if f"(#{(one := anchor(each.splitlines()[0]))})" not in beginning] == []


@cache
def command_at(*names: str) -> Any:
    """A command, or a group of them, by the words that call it."""
    if not names or names[0] not in COMMANDS:
        return None
    found = load_command(names[0])
    for name in names[1:]:
        below = getattr(found, "commands", None)
        if below is None:
            return found
        if name not in below:
            return None
        found = below[name]
    return found


def options_of(command: Any) -> set[str]:
    return {option for each in command.params for option in [*each.opts, *each.secondary_opts]} | {"--help", "-h"}


@page
def test_each_command_and_option_of_an_example_is_there(path: Path) -> None:
    unknown = []
    for line in code_lines(path):
        for call in re.findall(r"(?:^|\$ |&& )kafka-journal (?:--verbose )?([a-z].*)", line.split(" # ")[0].strip()):
            names = re.match(r"[a-z][a-z-]*(?: [a-z][a-z-]*(?= |$))?", call)
            assert names is not None
            command = command_at(*names[0].split())
            if command is None:
                unknown.append(call)
                continue
            options = re.findall(r"(?<![\w-])--?[a-z][a-z-]*", re.sub(r"'[^']*'", "", call))
            unknown += [f"{call}: {option}" for option in options if option not in options_of(command)]
    assert unknown == []


def texts_of_tree() -> str:
    """The product's modules, with literals that follow each other joined to one."""
    texts = [path.read_text(encoding="utf-8") for top in PRODUCT for path in (ROOT / top).rglob("*.py")]
    return "\n".join(re.sub(r'"\s*\n\s*f?"', "", text) for text in texts)


def test_each_message_that_operators_look_up_is_one_of_the_tree() -> None:
    rows = re.findall(
        r"^\| (`.*?) \|", section_of(ROOT / "docs" / "OPERATIONS.md", "Find a message"), flags=re.MULTILINE
    )
    messages = {message for row in rows for message in re.findall(r"`([^`]+)`", row)} - FOREIGN - FOREIGN_MESSAGES
    texts = texts_of_tree()
    assert len(rows) > 15
    assert [message for message in sorted(messages) if message not in texts] == []


def section_of(path: Path, heading: str) -> str:
    """A page's text from a heading of the second level on to the next one."""
    return path.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_table_of_steps_names_files_of_its_folders() -> None:
    section = section_of(ROOT / "docs" / "ARCHITECTURE.md", "The flow")
    rows = re.findall(r"^\| [^|`]+ \| (`[^|]+) \| ([^|]+) \| [^|]+ \|$", section, flags=re.MULTILINE)
    missing = []
    for folders, files in rows:
        places = [ROOT / folder for folder in re.findall(r"`([^`]+)`", folders)]
        missing += [str(place) for place in places if not place.is_dir()]
        names = re.findall(r"`([^`]+)`", files)
        missing += [name for name in names if not any((place / name).exists() for place in places)]
    assert len(rows) > 15
    assert missing == []


def has_section(name: str, title: str) -> bool:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    return f"# {title}\n" in text or f"**{title}.**" in text


def test_each_section_that_the_code_names_is_there() -> None:
    found = set()
    for top in PRODUCT:
        for path in [*(ROOT / top).rglob("*.py"), *(ROOT / top).rglob("*.proto")]:
            text = re.sub(r"\s+(//|#)?\s*", " ", path.read_text(encoding="utf-8"))
            found |= set(re.findall(r'docs/([A-Z-]+\.md), "([^"]+)"', text))
    assert len(found) > 5
    assert [each for each in sorted(found) if not has_section(*each)] == []
