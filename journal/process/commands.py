"""Commands of `kafka-journal` that messages print. Whoever copies one calls the same journal on the same brokers as the
process that printed it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

_FULL_NAME = re.compile(r"(?P<prefix>.*[._])?(?P<name>[^._]*)")

_servers: dict[str, str] = {}
"""The brokers of the journals whose settings this process has made, by full name; empty for the default."""

_given: dict[str, Mapping[str, str]] = {}
"""The options of the command that this process runs, by the full name of its journal; empty in a library."""


def command(words: str, *arguments: object, journal: str = "") -> str:
    """A command line of words (`repair skip`) and arguments (a shard, an offset). `journal` is a full name; without it,
    the command's own journal is called, or in a library the one whose settings were made last."""
    options = [f"{option} {shlex.quote(value)}" for option, value in _options(journal).items() if value]
    return " ".join(["kafka-journal", words, *options, *(shlex.quote(str(each)) for each in arguments)])


def note_servers(journal: str, servers: str) -> None:
    """Remember the brokers of a journal; `servers` is empty for the default."""
    _servers.pop(journal, None)  # the last one stands at the end
    _servers[journal] = servers


def note_options(journal: str, options: Mapping[str, str]) -> None:
    """Remember the options with which this process's command was called; `journal` is its journal's full name."""
    _given.clear()
    _given[journal] = options


def forget_options() -> None:
    """Forget the options of a command that has ended."""
    _given.clear()


def _options(journal: str) -> Mapping[str, str]:
    own = next(iter(_given), next(reversed(_servers), ""))
    given, full = _given.get(own, {}), journal or own
    if not full or (full == own and given.get("--config")):
        return given
    found = _FULL_NAME.fullmatch(full)
    assert found, "the pattern fits each name"
    named = {"-j": found["name"], "--topic-prefix": found["prefix"] or ""}
    return {**given, **named} if _given else {**named, "-b": _servers.get(full, "")}
