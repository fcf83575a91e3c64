"""`kafka-journal worker` runs the stream processor."""

from __future__ import annotations

from typing import Annotated

import typer

from journal.cli.common import Chosen, journal_command
from journal.cli.logs import log_progress
from journal.cli.worker.children import running_workers, worker_command
from journal.config import Settings

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
    serve_worker(settings, chosen, context, name, as_json, standby=standby)


def serve_worker(
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
