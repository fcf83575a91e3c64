"""`kafka-journal demo` runs a year of real departures through queues of a journal, with a failover in the middle."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from journal.cli.common import (
    BootstrapOption,
    ConfigOption,
    JournalOption,
    JsonOption,
    PropertyOption,
    StepProgress,
    ended_by_sigterm_as_by_ctrl_c,
    exit_codes,
    print_json,
    print_note,
    settings_from,
)
from journal.config import Settings
from journal.embedded.cluster import EmbeddedKafka
from journal.embedded.distribution import cache_directory
from journal.errors import MissingExtraError
from journal.process.commands import command
from journal.words import called


def demo(
    bootstrap: BootstrapOption = None,
    journal: JournalOption = None,
    rows: Annotated[
        int | None,
        typer.Option(
            min=100, help="Run only this many departures, the first ones of the year.", show_default="all 336,776"
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            help="The file for the report with plots.",
            show_default="demo.html in the cache",
        ),
    ] = None,
    properties: PropertyOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a year of departures through queues, kill the active node and the worker half way, and check the rest.

    Flights are messages to their airport, and airlines are durable subscriptions; a plane holds its flight until it
    lands. Landed flights are sent to a Kafka topic, and corrections are taken in from another one, each exactly once.
    The demo uses an embedded broker in a temporary directory, unless brokers are configured. At the end Spark computes
    queue analytics, if it is installed. The exit code is 1 if anything differs.
    """
    with exit_codes(), ended_by_sigterm_as_by_ctrl_c(), _work_directory() as work:
        # checked before a broker is started for nothing
        _require_extra()
        page = (report or cache_directory() / "demo.html").resolve()
        settings = settings_from(bootstrap, journal, properties, config, directory=work / "state")
        if "bootstrap_servers" in settings.model_fields_set:
            _run(settings, work, rows, page, as_json)
            _say(f"what is left stays in {called(settings.journal)}: {command('queues')}, messages and verify show it")
            return
        with EmbeddedKafka(work / "kafka", attached=True, report=_say) as kafka:
            servers = kafka.bootstrap_servers
            settings = settings_from(servers, journal, properties, config, directory=work / "state")
            brokers = {f"broker {broker.broker}": broker.pid for broker in kafka.status().brokers}
            _run(settings, work, rows, page, as_json, brokers)


def _run(
    settings: Settings,
    work: Path,
    rows: int | None,
    page: Path,
    as_json: bool,
    brokers: dict[str, int | None] | None = None,
) -> None:
    """Run the demo. `brokers` are its own brokers, by name, with their processes."""
    # the import is here, because the demo's extra may be missing
    from journal.cli.flights.processes import Processes
    from journal.cli.flights.run import Demo
    from journal.cli.flights.table import looked_back, show, verdict

    logs = work / "logs"
    logs.mkdir()
    with Processes(logs) as processes:
        processes.watch("demo", os.getpid())
        for name, pid in (brokers or {}).items():
            if pid is not None:
                processes.watch(name, pid)
        with StepProgress() as progress:
            demo_ = Demo(settings, work, processes, progress, _say, report=page, archived=brokers is not None)
            result = demo_.run(rows)
    problems = result.problems()
    if as_json:
        print_json(result.to_json())
    else:
        show(result)
    for line in verdict(result):
        print_note(line, style="red" if problems else "green")
    _say(looked_back(result))
    if problems:
        raise typer.Exit(1)


def _require_extra() -> None:
    """Raises MissingExtraError if the demo's extra is not installed."""
    if importlib.util.find_spec("psutil") is None:
        raise MissingExtraError("the demo needs psutil: pip install 'kafka-journal[demo]'")
    from journal.cli.flights.data import find_flights

    find_flights()


def _say(line: str) -> None:
    print_note(line, style="dim")


@contextmanager
def _work_directory() -> Iterator[Path]:
    """A temporary directory that is deleted with the demo. If the demo fails it stays, because its logs may show the
    reason."""
    work = Path(tempfile.mkdtemp(prefix="kafka-journal-demo-"))
    try:
        yield work
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or not any(work.rglob("*.log")):
            shutil.rmtree(work)
        else:
            where = f"logs and data are kept in {work}"
            print_note(where, style="red")
        raise
    shutil.rmtree(work)
