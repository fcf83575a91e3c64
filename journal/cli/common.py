"""What every command shares: options, settings, output, exit codes (0 done, 1 the operation failed, 2 usage)."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from journal.config import Settings, load_settings
from journal.errors import ConfigError, InvalidOperationError, JournalError

BootstrapOption = Annotated[
    str | None, typer.Option("-b", "--bootstrap-servers", help="Kafka brokers, host:port[,host:port].")
]
JournalOption = Annotated[str | None, typer.Option("-j", "--journal", help="The journal's name.")]
PropertyOption = Annotated[
    list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="A Kafka client property; may be repeated.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TakeOverOption = Annotated[bool, typer.Option("--take-over", help="Fence a node that is active, instead of refusing.")]

errors = Console(stderr=True)


def settings_from(
    bootstrap: str | None,
    journal: str | None,
    properties: Sequence[str] | None,
    config: Path | None,
    **flags: Any,
) -> Settings:
    """Settings of a command. Raises ConfigError."""
    parsed: dict[str, str] | None = None
    if properties:
        parsed = {}
        for item in properties:
            key, equals, value = item.partition("=")
            if not equals or not key:
                raise ConfigError(f"-X {item}: expected KEY=VALUE")
            parsed[key] = value
    return load_settings(config, bootstrap_servers=bootstrap, journal=journal, client_properties=parsed, **flags)


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code."""
    try:
        yield
    except (ConfigError, InvalidOperationError) as error:
        errors.print(f"error: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(2) from error
    except JournalError as error:
        errors.print(f"error: {error}", style="red", highlight=False, soft_wrap=True, markup=False)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        errors.print("interrupted", style="yellow")
        raise typer.Exit(130) from None


def set_up_logging(verbose: bool) -> None:
    """Logs on standard error."""
    handler = RichHandler(console=errors, show_path=False, rich_tracebacks=False, markup=False)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, format="%(message)s", handlers=[handler])


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(value, default=str) + "\n")
    sys.stdout.flush()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on standard output."""
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    Console().print(table)


def print_facts(title: str, facts: Mapping[str, object]) -> None:
    """Names and values on standard output."""
    print_table(title, ("", ""), list(facts.items()))


class StepProgress:
    """Bars on standard error for steps that take long; nothing where standard error is no terminal."""

    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=errors,
            transient=True,
            disable=not errors.is_terminal,
        )
        self._tasks: dict[str, Any] = {}

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show `done` of `total` (0: not known) of a step."""
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total or None)
        self._bars.update(self._tasks[step], completed=done, total=total or None)

    def __enter__(self) -> StepProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()
