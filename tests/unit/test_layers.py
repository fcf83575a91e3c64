"""Imports go one way: from the last row of the table of folders below to the first."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]

LAYERS: Sequence[Sequence[str]] = (
    ("journal.errors", "journal.words", "journal.limits", "journal.lazy_names", "journal.v1", "journal.process"),
    (
        "journal.amqp",
        "journal.observe",
        "journal.wire",
        "journal.verify",
        "journal.embedded",
        "journal.patterns",
        "journal.settings",
    ),
    ("journal.fold", "journal.kafka"),
    ("journal.append", "journal.topics", "journal.disk"),
    ("journal.wal", "journal.load", "journal.store"),
    ("journal.table", "journal.routing", "journal.upkeep"),
    ("journal.activate", "journal.xa", "journal.config"),
    ("journal.journal", "journal.local", "journal.sources", "journal.broker", "streams"),
    ("loaders",),
    ("journal.cli",),
    ("bench",),
)
"""From the bottom up. A module imports what stands with it in a row, or below."""

LEVELS = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

Import = tuple[str, int, str]
"""The module that imports, the line where it does, and what it imports."""


def modules() -> dict[str, Path]:
    found = {}
    for top in ("journal", "streams", "loaders", "bench"):
        for file in (ROOT / top).rglob("*.py"):
            name = ".".join(file.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = file
    return found


def imports_of(module: str, text: str, known: Mapping[str, Path]) -> Iterator[Import]:
    """Each import of ours, also those inside functions and for types alone."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield module, node.lineno, name if name in known else node.module
        elif isinstance(node, ast.Import):
            yield from ((module, node.lineno, alias.name) for alias in node.names)


def room_of(module: str) -> str:
    """The row's entry that a module belongs to; empty for none."""
    while module and module not in LEVELS:
        module = module.rpartition(".")[0]
    return module


def upward(imports: Sequence[Import]) -> list[str]:
    return [
        f"{module}:{line} imports {target}, which stands above it"
        for module, line, target in imports
        if LEVELS[room_of(target)] > LEVELS[room_of(module)]
    ]


def circle(imports: Sequence[Import], *, rooms: bool) -> str:
    """One circle, with the lines that close it; empty without."""
    arrows: dict[str, dict[str, str]] = defaultdict(dict)
    for module, line, target in imports:
        one, other = (room_of(module), room_of(target)) if rooms else (module, target)
        if one != other:
            arrows[one].setdefault(other, f"{module}:{line} imports {target}")
    try:
        list(TopologicalSorter({one: set(others) for one, others in arrows.items()}).static_order())
    except CycleError as error:
        way = error.args[1]
        return "; ".join(arrows[one][other] for other, one in pairwise(way))
    return ""


def ours() -> list[Import]:
    """All imports but those of the public names in `journal` itself, which stand above everything."""
    known = modules()
    inside = {module: file for module, file in known.items() if module != "journal"}
    found = (each for module, file in inside.items() for each in imports_of(module, file.read_text(), known))
    return [each for each in found if each[2] in known and each[2] != each[0]]


def test_every_module_stands_in_a_row() -> None:
    assert [module for module in modules() if not room_of(module) and module != "journal"] == []


def test_imports_go_down() -> None:
    assert upward(ours()) == []


def test_no_folders_import_each_other_in_a_circle() -> None:
    assert circle(ours(), rooms=True) == ""


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle(ours(), rooms=False) == ""


def test_an_import_upwards_and_a_circle_are_told_with_both_lines() -> None:
    up = [("journal.wire.keys", 3, "journal.kafka.ports"), ("journal.kafka.ports", 7, "journal.wire.keys")]
    assert upward(up) == ["journal.wire.keys:3 imports journal.kafka.ports, which stands above it"]
    for rooms in (True, False):
        assert set(circle(up, rooms=rooms).split("; ")) == {
            "journal.wire.keys:3 imports journal.kafka.ports",
            "journal.kafka.ports:7 imports journal.wire.keys",
        }


def test_a_public_class_has_a_name_of_its_own() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    shipped = ((module, file) for module, file in modules().items() if not module.startswith("bench"))
    for module, file in shipped:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{module}:{node.lineno}")
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
