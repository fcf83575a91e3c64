"""`kafka-journal settings` prints every setting with its default and what it does, in the form of a settings file.

The texts are the docstrings of the settings' classes.
"""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from journal.cli.common import JsonOption, exit_codes, print_json, print_line
from journal.config import Settings
from journal.errors import ConfigError

_WIDTH = 100
"""The width of a comment."""

Default = str | bool | int | float | list[str] | None


class SettingText(NamedTuple):
    """A setting, as this command describes it."""

    name: str
    """The name in a settings file, behind the names of the settings that it is a part of."""
    default: Default
    """The default value; None if the setting has none, or if it is computed."""
    required: bool
    header: str
    """The header of the table that it stands in, if that is a part of a list, as a route, or has a key of its own, as a
    pattern; else empty."""
    text: str
    """The text says what the setting does, and which values it may have."""

    @property
    def line(self) -> str:
        """A line of a settings file. It is a comment if there is no default to write, or no list to write it into."""
        name = f"# {self.header} {self.name.rpartition('.')[2]}" if self.header else self.name
        if self.default is None:
            return f"# {name.removeprefix('# ')} = ({'must be given' if self.required else 'not set'})"
        return f"{name} = {json.dumps(self.default)}"


def settings(
    name: Annotated[str, typer.Argument(help="Only settings whose name contains this.", show_default="all")] = "",
    as_json: JsonOption = False,
) -> None:
    """Print every setting: its name, its default, and what it does. Times are milliseconds, sizes bytes.

    The output is a settings file for --config: copy the lines that you change. The environment variable of
    limits.data_bytes_max is KAFKA_JOURNAL_LIMITS__DATA_BYTES_MAX.
    """
    with exit_codes():
        found = [each for each in described_settings(Settings) if name.lower() in each.name]
        if not found:
            raise ConfigError(f"no setting's name contains {name!r}: `kafka-journal settings` prints all")
        if as_json:
            print_json([{"name": each.name, "default": each.default, "text": each.text} for each in found])
            return
        for each in found:
            for line in textwrap.wrap(each.text, _WIDTH, break_on_hyphens=False):
                print_line(f"# {line}")
            print_line(each.line)
            print_line("")


def described_settings(model: type[BaseModel], before: str = "", header: str = "") -> Iterator[SettingText]:
    """Every setting of a class, with those of its parts in their place."""
    texts = _docstrings(model)
    for name, field in model.model_fields.items():
        if part := _part_of(field.annotation):
            yield from described_settings(part, *_place(before + name, get_origin(field.annotation)))
        else:
            text = " ".join([texts[name], *_values(field)])
            yield SettingText(before + name, _default(field), field.is_required(), header, text)


def _place(name: str, origin: Any) -> tuple[str, str]:
    """What stands before the names of a part's settings, and the header of their table in a file."""
    if origin is tuple:
        return f"{name}.", f"[[{name}]]"
    if origin is dict:
        return f'{name}."#".', f'[{name}."#"]'
    return f"{name}.", ""


def _docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    """The docstrings of a class' attributes, and of those that it inherits."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if not each.__module__.startswith("journal."):
            continue
        (defined,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(defined, ast.ClassDef)
        for above, below in pairwise(defined.body):
            if isinstance(above, ast.AnnAssign) and isinstance(below, ast.Expr):
                found[ast.unparse(above.target)] = " ".join(ast.literal_eval(below.value).split())
    return found


def _part_of(annotation: Any) -> type[BaseModel] | None:
    """The class of a setting that has settings of its own, or is a list or a table of such."""
    at = {tuple: 0, dict: 1}.get(get_origin(annotation))
    kind = annotation if at is None else get_args(annotation)[at]
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _values(field: FieldInfo) -> Iterator[str]:
    """A sentence about the values that a setting may have."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        yield f"One of {', '.join(get_args(kind))}."
    elif isinstance(kind, type) and issubclass(kind, Enum):
        yield f"One of {', '.join(each.value for each in kind)}."
    bounds = {key: value for each in field.metadata for key in ("ge", "le") if (value := getattr(each, key, None))}
    least = bounds.get("ge", 0)
    if "le" in bounds:
        yield f"{least} to {bounds['le']}."
    elif least > 1:
        yield f"At least {least}."


def _default(field: FieldInfo) -> Default:
    value = field.default
    if field.is_required() or field.default_factory is not None or value is None:
        return None
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else value
