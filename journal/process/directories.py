"""Directories of the user's files, by the XDG base directory specification. A container may have neither these
variables nor a home directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from journal.errors import ConfigError

STATE, CACHE, DATA = "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"

_IN_HOME = {STATE: Path(".local", "state"), CACHE: Path(".cache"), DATA: Path(".local", "share")}


def user_directory(variable: str, setting: str = "", environ: Mapping[str, str] = os.environ) -> Path:
    """The directory of kafka-journal in the base directory of an XDG variable. Raises ConfigError if there is none; the
    error names the variables, and the `setting` that makes them unnecessary."""
    if base := environ.get(variable):
        return Path(base, "kafka-journal")
    try:
        return Path.home() / _IN_HOME[variable] / "kafka-journal"
    except RuntimeError as error:
        settings = " or ".join(filter(None, (setting, variable, "HOME")))
        raise ConfigError(f"user id {os.getuid()} has no home directory here: set {settings}") from error
