"""`kafka-journal up` runs a whole broker: the embedded Kafka, a journal, its worker, a node that serves AMQP 1.0."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from journal.cli.common import Chosen, journal_command, print_json, print_note
from journal.cli.init import ShardsOption, made_journal
from journal.cli.kafka import Directory
from journal.cli.logs import log_progress
from journal.cli.stopping import stopped_by_signals
from journal.cli.worker.children import worker_command
from journal.cli.worker.worker import LogJsonOption, ProcessesOption, serve_worker
from journal.config import Settings
from journal.embedded.cluster import EmbeddedKafka, default_directory
from journal.words import called

DEFAULT_LISTEN = "127.0.0.1:5672"


@journal_command
def up(
    chosen: Chosen,
    context: typer.Context,
    shards: ShardsOption = None,
    directory: Directory = None,
    processes: ProcessesOption = None,
    amqp: Annotated[
        str | None,
        typer.Option(
            "--amqp", help="HOST:PORT where AMQP 1.0 clients connect.", show_default=f"amqp.listen, or {DEFAULT_LISTEN}"
        ),
    ] = None,
    no_amqp: Annotated[
        bool,
        typer.Option(
            "--no-amqp", help="Run Kafka, journal and worker only, for programs that activate the journal themselves."
        ),
    ] = False,
    as_json: LogJsonOption = False,
) -> None:
    """Run a whole broker until Ctrl-C: the embedded Kafka (unless brokers are configured), the journal's topics, its
    worker, and a node that serves AMQP 1.0 on this machine.

    An embedded Kafka that runs already is used. It keeps running afterwards.
    """
    flags: dict[str, Any] = {"shards": shards, "worker_processes": processes}
    settings = chosen.given(**flags)
    if no_amqp:
        amqp = ""
    elif amqp is None and "listen" not in settings.amqp.model_fields_set:
        amqp = DEFAULT_LISTEN
    if amqp is not None:
        flags["amqp"] = {"listen": amqp}
        settings = chosen.given(**flags)
    if settings.amqp.listen:
        from journal.broker.listening import require_free

        require_free(*settings.amqp.address)
    if "bootstrap_servers" in settings.model_fields_set:
        _up(settings, chosen, context, shards, as_json)
        return
    with EmbeddedKafka(directory or default_directory(), attached=True) as kafka:
        chosen = replace(chosen, bootstrap=kafka.bootstrap_servers)
        _up(chosen.given(**flags), chosen, context, shards, as_json)


def _up(settings: Settings, chosen: Chosen, context: typer.Context, shards: int | None, as_json: bool) -> None:
    made_journal(settings, shards)
    served = f"{settings.amqp.scheme}://{settings.amqp.listen}" if settings.amqp.listen else ""
    if as_json:
        print_json({"journal": settings.journal, "bootstrap_servers": settings.bootstrap_servers, "amqp": served})
    else:
        serves = f" and serves {served} once its node is active" if served else ""
        print_note(
            f"{called(settings.journal)} is up at {settings.bootstrap_servers}{serves}; Ctrl-C ends it", style="green"
        )
    if not served:
        serve_worker(settings, chosen, context, None, as_json)
        return
    # importing the broker takes a while
    from journal.cli.node.node import serve

    log_progress(as_json=as_json)
    verbose = context.find_root().params["verbose"]
    worker = worker_command(settings, chosen, as_json=as_json, verbose=verbose, standby=False)
    with stopped_by_signals() as stop:
        serve(settings, worker, stop, workers=settings.worker_processes)
