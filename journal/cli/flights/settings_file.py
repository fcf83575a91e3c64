"""The settings in a TOML file, so that all processes of the demo have the same ones, from whatever source they came."""

from __future__ import annotations

import json

from journal.config import Settings


def toml_of(settings: Settings) -> str:
    """All settings except the node's name, which is different in each process."""
    lines, tables = [], []
    for name, value in settings.model_dump(mode="json", exclude_none=True).items():
        if isinstance(value, dict):
            tables += [f"[{name}]", *(f"{_toml(key)} = {_toml(item)}" for key, item in value.items())]
        elif name != "node":
            lines.append(f"{name} = {_toml(value)}")
    return "\n".join([*lines, *tables, ""])


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(key)} = {_toml(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    # strings, numbers and booleans of JSON are TOML's too
    return json.dumps(value, ensure_ascii=False)
