"""`kafka-journal node` runs a node with a message store until Ctrl-C or SIGTERM; `node hand-over` moves the journal to
another node."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from journal.cli.common import PROGRESS_AFTER_S, Chosen, JsonOption, journal_command, print_json
from journal.cli.logs import log_progress
from journal.cli.standard_streams import note_done
from journal.cli.stopping import stopped_by_signals
from journal.cli.tables import print_facts
from journal.cli.worker.worker import LogJsonOption

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from journal.cli.control_socket.serving import ServedNode
    from journal.cli.node.store import StoreOwner
    from journal.config import Settings
    from loaders.node.node import Node

log = logging.getLogger(__name__)

app = typer.Typer(invoke_without_command=True, no_args_is_help=False)

_LOOK_S = 0.2

NameOption = Annotated[str | None, typer.Option(help="This node's name. Each node needs a different one.")]
PreferredOption = Annotated[
    bool,
    typer.Option(
        "--preferred", help="Become active before other nodes. With the setting fail_back, ask for the journal back."
    ),
]
WithWorkerOption = Annotated[bool, typer.Option("--with-worker", help="Also run a worker in a child process.")]
AmqpOption = Annotated[
    str | None,
    typer.Option("--amqp", help="HOST:PORT where AMQP 1.0 clients connect while this node is active."),
]
InsecureOption = Annotated[
    bool,
    typer.Option("--insecure", help="Let clients connect from other machines although there are no users or no TLS."),
]
WebOption = Annotated[
    str | None,
    typer.Option("--web", help="HOST:PORT where the node answers /metrics (Prometheus), /live and /ready."),
]
ToOption = Annotated[str, typer.Option(help="The standby that takes over.", show_default="the best")]


@app.callback()
@journal_command
def node(
    chosen: Chosen,
    context: typer.Context,
    name: NameOption = None,
    preferred: PreferredOption = False,
    with_worker: WithWorkerOption = False,
    amqp: AmqpOption = None,
    insecure: InsecureOption = False,
    web: WebOption = None,
    as_json: LogJsonOption = False,
) -> None:
    """Serve the journal's message store as one of several nodes. On SIGTERM or Ctrl-C, hand over and end.

    One node is active. The others are standbys, which take over when it dies, hangs or leaves. `kafka-journal status`
    shows them. Commands with --node use this node.
    """
    if context.invoked_subcommand is not None:
        if chosen != Chosen() or name or preferred or with_worker or amqp or insecure or web or as_json:
            raise typer.BadParameter(f"options of {context.invoked_subcommand} come behind its name")
        return
    listening = {"listen": amqp, "insecure": insecure or None}
    listening = {key: value for key, value in listening.items() if value is not None}
    settings = chosen.settings(node=name, preferred=preferred or None, amqp=listening or None, web=web)
    log_progress(as_json=as_json)
    worker = None
    if with_worker:
        from journal.cli.worker.children import worker_command

        # standby: if a worker dies with its node, its shard must not be read from the table topic while this node waits
        # at its gate
        verbose = context.find_root().params["verbose"]
        worker = worker_command(settings, chosen, as_json=as_json, verbose=verbose, standby=True)
    with stopped_by_signals() as stop:
        serve(settings, worker, stop)


def serve(settings: Settings, worker: Sequence[str] | None, stop: threading.Event, *, workers: int = 1) -> None:
    """Run a node until `stop` is set; `worker` is the command line of its own worker, of which `workers` run."""
    # in `journal`, only the command line may import the layers above it
    from journal.cli.control_socket.serving import control_socket
    from journal.cli.node.handover import wait_for_successor
    from journal.cli.node.store import StoreOwner
    from journal.cli.worker.children import running_workers
    from journal.disk.slots import leaving_nothing_of_no_journal
    from journal.errors import StateError
    from loaders.node.node import Node
    from loaders.node.roles import Role

    with leaving_nothing_of_no_journal(settings.journal_directory), ExitStack() as ending:
        owner = ending.enter_context(StoreOwner(settings))
        serving = Node(
            settings,
            loader=owner.loader,
            on_active=owner.on_active,
            on_standby=owner.on_standby,
            on_fenced=owner.on_fenced,
            progress=LoggedProgress(),
        )
        worker_ending = ending.enter_context(ExitStack())  # the worker ends after the node
        ending.callback(serving.close)
        # this comes first, because another node with this name must not be taken for this one, nor run its commands
        ending.enter_context(control_socket(settings, _as_served(serving, owner)))
        ending.enter_context(_watched(settings, serving, owner))
        if worker is not None:
            worker_ending.enter_context(running_workers(worker, workers))
        if not _started(serving, stop):
            return
        if worker is not None:
            worker_ending.callback(wait_for_successor, settings)
        while not stop.wait(_LOOK_S):
            if serving.role is Role.STOPPED:
                raise StateError(f"the node ended: {serving.status().reason}")


@contextmanager
def _watched(settings: Settings, serving: Node, owner: StoreOwner) -> Iterator[None]:
    """Answer those who watch the node over HTTP, if the settings say where."""
    from journal.cli.node.metrics import node_families, why_not_ready
    from journal.observe.web import ObservedWeb
    from journal.process.listening import listen_address

    if not settings.web:
        yield
        return
    web = ObservedWeb(
        listen_address(settings.web),
        metrics=lambda: node_families(serving.status(), owner.served),
        ready=lambda: why_not_ready(serving.status()),
    )
    host, port = web.start()
    log.info("metrics and health are on http://%s:%d", host, port)
    with closing(web):
        yield


def _started(serving: Node, stop: threading.Event) -> bool:
    """Start the node and wait for Kafka; False if it was told to stop meanwhile."""
    from journal.errors import OperatingError
    from journal.table.opening import patiently

    try:
        patiently(serving.start, given_up=stop.is_set)
    except OperatingError:
        if stop.is_set():
            return False
        raise
    return True


def _as_served(serving: Node, owner: StoreOwner) -> ServedNode:
    """The interface of the node for its control socket."""
    from google.protobuf.json_format import MessageToDict

    from journal.cli.control_socket.serving import ServedNode

    def status() -> dict[str, Any]:
        said = MessageToDict(
            serving.status(), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        sources = owner.sources()
        return said if sources is None else {**said, "sources": sources}

    def hand_over(to: str) -> dict[str, Any]:
        serving.hand_over(to)
        return status()

    return ServedNode(
        served=lambda: owner.served,
        role=lambda: serving.role,
        status=status,
        hand_over=hand_over,
        resume_source=owner.resume_source,
        active_node=lambda: serving.active_node,
    )


class LoggedProgress:
    """Logs the progress of an activation that takes long. The wait at the gate is logged elsewhere."""

    def __init__(self) -> None:
        from journal.activate.activation import GATE_STEP

        self._said_by_itself = GATE_STEP
        self._step = ""
        self._say_at = 0.0

    def __call__(self, step: str, done: int, total: int) -> None:
        if step == self._said_by_itself:
            return
        now = time.monotonic()
        if step != self._step:
            self._step, self._say_at = step, now + PROGRESS_AFTER_S
        elif now >= self._say_at:
            self._say_at = now + PROGRESS_AFTER_S
            log.info("activating: %s, %d of %s", step, done, total or "?")


# ---- hand-over ---------------------------------------------------------------------------------------------


@app.command("hand-over")
@journal_command
def hand_over(chosen: Chosen, to: ToOption = "", as_json: JsonOption = False) -> None:
    """Hand the journal over from the active node to a fit standby, and wait until that is active. Any machine may run
    this."""
    from journal.cli.node.handover import ask_for_hand_over

    began = time.monotonic()
    found = ask_for_hand_over(chosen.settings(), to)
    took_s = round(time.monotonic() - began, 3)
    note_done(f"node {found.node} is active")
    if as_json:
        print_json({"node": found.node, "epoch": found.epoch, "took_seconds": took_s, "was_active": found.was_active})
    else:
        title = "active already" if found.was_active else "handed over"
        print_facts(title, {"active": found.node, "epoch": found.epoch, "took": f"{took_s:.1f} s"})
