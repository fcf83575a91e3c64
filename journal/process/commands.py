"""Commands of `kafka-journal` that messages print. Whoever copies one calls the same journal on the same brokers as the
process that printed it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

_FULL_NAME = re.compile(r"(?P<prefix>.*[._])?(?P<name>[^._]*)")

_servers: dict[str, str] = {}
"""The brokers of the journals whose settings this process has made, by full name; empty for the default, and for a
journal that has had several, of which nobody could tell which one is meant."""

_several: set[str] = set()
"""The journals that have had several brokers."""

_given: dict[str, Mapping[str, str]] = {}
"""The options of the command that this process runs, by the full name of its journal; empty in a library."""


def command(words: str, *arguments: object, journal: str = "") -> str:
    """A command line of words (`repair skip`) and arguments (a shard, an offset). `journal` is a full name; without it,
    the command's own journal is called, or in a library the only one whose settings were made."""
    options = [f"{option} {shlex.quote(value)}" for option, value in _options(journal).items() if value]
    return " ".join(["kafka-journal", words, *options, *(shlex.quote(str(each)) for each in arguments)])


def note_servers(journal: str, servers: str) -> None:
    """Remember the brokers of a journal; `servers` is empty for the default."""
    if _servers.get(journal) and servers and _servers[journal] != servers:
        _several.add(journal)
    _servers[journal] = "" if journal in _several else servers


def note_options(journal: str, options: Mapping[str, str]) -> None:
    """Remember the options with which this process's command was called; `journal` is its journal's full name."""
    _given.clear()
    _given[journal] = options


def forget() -> None:
    """Forget options and brokers: the process's command has ended."""
    _given.clear()
    _servers.clear()
    _several.clear()


def _options(journal: str) -> Mapping[str, str]:
    own = next(iter(_given), next(iter(_servers)) if len(_servers) == 1 else "")
    given, full = _given.get(own, {}), journal or own
    if not full or (full == own and given.get("--config")):
        return given
    found = _FULL_NAME.fullmatch(full)
    assert found, "the pattern fits each name"
    named = {"-j": found["name"], "--topic-prefix": found["prefix"] or ""}
    return {**given, **named} if _given else {**named, "-b": _servers.get(full, "")}
