"""What all commands share: options, settings, output, and exit codes (0: done, 1: the operation failed, 2: wrong
usage)."""

from __future__ import annotations

import getpass
import inspect
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from journal.cli.standard_streams import drop_output
from journal.errors import (
    ConfigError,
    FencedError,
    InvalidOperationError,
    JournalError,
    KafkaUnavailableError,
    OperatingError,
    OutcomeUnknownError,
    OutputError,
)
from journal.process.commands import command, forget, note_options
from journal.words import escaped

if TYPE_CHECKING:
    from journal.config import Settings

BootstrapOption = Annotated[
    str | None, typer.Option("-b", "--bootstrap-servers", help="Kafka brokers, host:port[,host:port].")
]
JournalOption = Annotated[str | None, typer.Option("-j", "--journal", help="The journal's name.")]
PrefixOption = Annotated[
    str | None,
    typer.Option("--topic-prefix", metavar="PREFIX", help="What stands before names of topics and groups, as `team.`."),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A Kafka client property. Repeat the option for more."),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", help="A TOML file of settings.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
TakeOverOption = Annotated[bool, typer.Option("--take-over", help="Fence the active node instead of refusing.")]

T = TypeVar("T")

errors = Console(stderr=True)

PROGRESS_AFTER_S = 2.0
"""A command that takes longer than this shows its progress."""


def settings_from(
    bootstrap: str | None,
    journal: str | None,
    properties: Sequence[str] | None,
    config: Path | None,
    **flags: Any,
) -> Settings:
    """The settings of a command. Raises ConfigError."""
    # many commands have no settings, and importing the code that reads them takes a while
    from journal.config import load_settings

    parsed: dict[str, str] | None = None
    if properties:
        parsed = {}
        for item in properties:
            key, equals, value = item.partition("=")
            if not equals or not key:
                raise ConfigError(f"-X {item}: expected KEY=VALUE")
            parsed[key] = value
    return load_settings(config, bootstrap_servers=bootstrap, journal=journal, client_properties=parsed, **flags)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The options that choose a journal and its brokers. All commands have the same."""

    bootstrap: BootstrapOption = None
    journal: JournalOption = None
    properties: PropertyOption = None
    config: ConfigOption = None
    topic_prefix: PrefixOption = None

    def given(self, **flags: Any) -> Settings:
        """The settings of the command. `flags` that are not None override them. Raises ConfigError."""
        settings = self._load(**flags)
        note_options(settings.journal, self._printed())
        return settings

    def _load(self, **flags: Any) -> Settings:
        flags["topic_prefix"] = self.topic_prefix
        return settings_from(self.bootstrap, self.journal, self.properties, self.config, **flags)

    def _printed(self) -> dict[str, str]:
        """The options for commands that messages print. The file's path is absolute, for readers of a service's log.
        Properties are left out, because they may be passwords."""
        return {
            "-j": self.journal or "",
            "--topic-prefix": self.topic_prefix or "",
            "-b": self.bootstrap or "",
            "--config": str(self.config.absolute()) if self.config else "",
        }

    def settings(self, **flags: Any) -> Settings:
        """The settings of a command that talks to Kafka: as `given`; if they name no brokers, those of the user's
        embedded Kafka, if that runs. Raises ConfigError."""
        from journal.embedded.default import running_embedded

        settings = self.given(**flags)
        if "bootstrap_servers" in settings.model_fields_set or not (running := running_embedded()):
            return settings
        directory, servers = running
        print_note(f"no brokers are named (-b), so this uses the embedded Kafka in {directory}: {servers}")
        return replace(self, bootstrap=servers)._load(**flags)


def journal_command(called: Callable[..., None]) -> Callable[..., None]:
    """A command with the options of `Chosen` behind its own. The command gets a `Chosen` first; its errors become exit
    codes."""
    own = list(inspect.signature(called, eval_str=True).parameters.values())[1:]
    shared = inspect.signature(Chosen, eval_str=True).parameters
    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared.values())]

    @wraps(called)
    def run(**given: Any) -> None:
        try:
            with exit_codes():
                called(Chosen(**{name: given.pop(name) for name in shared}), **given)
        finally:
            forget()

    # typer reads the signature from it
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


@contextmanager
def ended_by_sigterm_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does, so that it leaves nothing behind. Only the main thread gets it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def said_if_cut_off(say: Callable[[], None], begun: Callable[[], bool]) -> Iterator[None]:
    """Call `say`, which prints how far a command has come, if the command is interrupted, or if its journal fails after
    it has `begun`."""
    try:
        yield
    except KeyboardInterrupt:
        say()
        raise
    except (FencedError, OutcomeUnknownError, OperatingError):
        if begun():
            say()
        raise


@contextmanager
def exit_codes() -> Iterator[None]:
    """Turn errors into one line on standard error and an exit code."""
    try:
        yield
    except (ConfigError, InvalidOperationError) as error:
        print_error(f"error: {error}")
        raise typer.Exit(2) from error
    except KafkaUnavailableError as error:
        print_error(f"error: Kafka does not answer: {error}")
        print_error("is it running, and are the brokers right (-b, KAFKA_JOURNAL_BOOTSTRAP_SERVERS)?")
        raise typer.Exit(1) from error
    except FencedError as error:
        print_error(f"error: another node took the journal over ({command('status')} names it): {error}")
        raise typer.Exit(1) from error
    except OutcomeUnknownError as error:
        print_error(f"error: {error}")
        print_error(
            f"the last operations are in the journal as a whole or not at all: {command('dump', '--now')} shows which"
        )
        raise typer.Exit(1) from error
    except OutputError:
        raise  # `standard_streams` prints it
    except JournalError as error:
        print_error(f"error: {error}")
        raise typer.Exit(1) from error
    except BrokenPipeError:
        # the reader of standard output has ended
        drop_output()
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        errors.print("interrupted", style="yellow")
        raise typer.Exit(130) from None


def print_error(text: str) -> None:
    """Print an error on standard error, in one line or several."""
    print_note(text, style="red", kept="\n")


def print_note(text: str, *, style: str = "", kept: str = "") -> None:
    """Print a line for people on standard error, beside a command's results. Characters in `kept` are not escaped."""
    errors.print(Text(escaped(text, kept), style), soft_wrap=True)


def print_line(text: str) -> None:
    """Print a line of a command's results on standard output."""
    typer.echo(escaped(text))


def confirm(question: str, *, yes: bool) -> None:
    """Ask on standard error, unless `yes`. Ends the command with exit code 1 if the answer is no or there is none."""
    if not yes and not _answered(lambda: typer.confirm(escaped(question), err=True)):
        raise typer.Abort


def confirm_by_name(question: str, name: str, *, yes: bool) -> None:
    """Have the user type a name, unless `yes`. Ends the command with exit code 1 if another one or none is typed."""
    if not yes and _answered(lambda: typer.prompt(escaped(question), err=True)) != name:
        print_error(f"error: that is not {name}: nothing was done")
        raise typer.Exit(1)


def _answered(ask: Callable[[], T]) -> T:
    """The answer to a question. Ends the command with exit code 1 if nobody can answer."""
    try:
        return ask()
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        typer.echo(err=True)
        print_error("error: nobody answered, as standard input has ended: --yes answers the question")
        raise typer.Exit(1) from None


def operator() -> str:
    """The user who runs this command, as user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have an id without a name
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def print_json(value: object) -> None:
    """Print one JSON document on standard output."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


class StepProgress:
    """Progress bars on standard error for long steps. Nothing is shown if standard error is no terminal."""

    def __init__(self, *, after_s: float = 0.0) -> None:
        """The bars appear once the command has taken `after_s`."""
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
        self._show_at = time.monotonic() + after_s

    def __call__(self, step: str, done: int, total: int) -> None:
        """Show that `done` of `total` of a step are done; a total of 0 is not known."""
        if not self._bars.live.is_started and time.monotonic() >= self._show_at:
            self._bars.start()
        if step not in self._tasks:
            self._tasks[step] = self._bars.add_task(step, total=total or None)
        self._bars.update(self._tasks[step], completed=done, total=total or None)

    def hide(self) -> None:
        """Hide the bars for good, because the command's own output shows its progress from here on."""
        self._bars.stop()
        self._show_at = math.inf

    def __enter__(self) -> StepProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


@contextmanager
def shown_if_long(step: str) -> Iterator[None]:
    """A bar for a long step that cannot measure its progress."""
    with StepProgress() as progress:
        late = threading.Timer(PROGRESS_AFTER_S, progress, (step, 0, 0))
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()
