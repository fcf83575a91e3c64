"""An option whose value may be left out, which Typer lacks: `--node`, `--node NAME` and `--node=NAME`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

OPTIONAL_VALUES = frozenset({"--node"})
"""Options whose value may be left out, and is empty then. The next argument is the value unless it looks like an
option."""


class OptionalValueCommand(TyperCommand):
    """A command that may have options with optional values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        taken = {option for parameter in self.params for option in parameter.opts} & OPTIONAL_VALUES
        return super().parse_args(ctx, _with_values(args, taken))


class OptionalValueGroup(TyperGroup):
    """A command with commands under it, whose own options may have optional values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before = next((at for at, argument in enumerate(args) if argument in self.commands), len(args))
        taken = {option for parameter in self.params for option in parameter.opts} & OPTIONAL_VALUES
        return super().parse_args(ctx, [*_with_values(args[:before], taken), *args[before:]])


def _with_values(args: Sequence[str], options: frozenset[str] | set[str]) -> list[str]:
    """The arguments, with a value for each of these options."""
    given: list[str] = []
    for at, argument in enumerate(args):
        if argument == "--":
            return [*given, *args[at:]]
        left_out = argument in options and (at + 1 == len(args) or args[at + 1].startswith("-"))
        given.append(f"{argument}=" if left_out else argument)
    return given
