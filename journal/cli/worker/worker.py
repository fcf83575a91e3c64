"""`kafka-journal worker` runs the stream processor, and `up` runs everything together."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from journal.cli.common import Chosen, journal_command, print_json, print_note
from journal.cli.init import ShardsOption, made_journal
from journal.cli.kafka import Directory
from journal.cli.logs import log_progress
from journal.cli.worker.children import running_workers, worker_command
from journal.config import Settings
from journal.embedded.cluster import EmbeddedKafka, default_directory
from journal.words import called

ProcessesOption = Annotated[
    int | None,
    typer.Option("--processes", help="Number of processes, which share the worker's shards.", show_default="1"),
]
LogJsonOption = Annotated[bool, typer.Option("--json", help="Log JSON lines on standard error.")]


@journal_command
def worker(
    chosen: Chosen,
    context: typer.Context,
    name: Annotated[str | None, typer.Option(help="This worker's name, under which its local copies are kept.")] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Keep warm copies of other workers' shards, to take them over at once.")
    ] = False,
    processes: ProcessesOption = None,
    as_json: LogJsonOption = False,
) -> None:
    """Run the worker, which applies the WAL to the tables, until SIGTERM or Ctrl-C. Several workers share the
    shards."""
    settings = chosen.settings(worker_processes=processes)
    _serve(settings, chosen, context, name, as_json, standby=standby)


@journal_command
def up(
    chosen: Chosen,
    context: typer.Context,
    shards: ShardsOption = None,
    directory: Directory = None,
    processes: ProcessesOption = None,
    as_json: LogJsonOption = False,
) -> None:
    """Run the embedded broker (unless brokers are configured), create the journal's topics, and run a worker, until
    Ctrl-C.

    An embedded broker that runs already is used. It keeps running afterwards.
    """
    settings = chosen.given(shards=shards, worker_processes=processes)
    if "bootstrap_servers" in settings.model_fields_set:
        _up(settings, chosen, context, shards, as_json)
        return
    with EmbeddedKafka(directory or default_directory(), attached=True) as kafka:
        chosen = replace(chosen, bootstrap=kafka.bootstrap_servers)
        _up(chosen.given(shards=shards, worker_processes=processes), chosen, context, shards, as_json)


def _up(settings: Settings, chosen: Chosen, context: typer.Context, shards: int | None, as_json: bool) -> None:
    made_journal(settings, shards)
    if as_json:
        print_json({"journal": settings.journal, "bootstrap_servers": settings.bootstrap_servers})
    else:
        print_note(f"{called(settings.journal)} is up at {settings.bootstrap_servers}; Ctrl-C ends it", style="green")
    _serve(settings, chosen, context, None, as_json)


def _serve(
    settings: Settings,
    chosen: Chosen,
    context: typer.Context,
    name: str | None,
    as_json: bool,
    *,
    standby: bool = False,
) -> None:
    """Run the worker in this process, and in as many more as the settings say."""
    # in `journal`, only the command line may import the layers above it
    from streams.worker.service import run_service

    log_progress(as_json=as_json)
    verbose = context.find_root().params["verbose"]
    others = worker_command(settings, chosen, as_json=as_json, verbose=verbose, standby=standby, name=name)
    run_service(
        settings,
        name,
        standby=standby,
        beside=running_workers(others, settings.worker_processes - 1),
    )
