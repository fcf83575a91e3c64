"""`python -m bench NAME` measures one part of the journal on this machine, as a ratio to what Kafka alone does."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.report import machine, run_bench
from journal.cli.common import (
    BootstrapOption,
    JsonOption,
    ended_by_sigterm_as_by_ctrl_c,
    exit_codes,
    print_json,
    settings_from,
)
from journal.cli.logs import set_up_logging
from journal.cli.standard_streams import standard_streams
from journal.cli.tables import print_facts

QuickOption = Annotated[
    bool, typer.Option("--quick", help="Run fewer rounds with fewer operations, for rough figures.")
]

app = typer.Typer(
    help="Measure the journal and a limit (the same work without it) in turn, and compare them. A bench starts an "
    "embedded broker of its own unless brokers are configured.",
    no_args_is_help=True,
)


@app.command()
def append(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Appends to the journal, against confluent-kafka's producers."""
    _run("append", bootstrap, quick, as_json)


@app.command()
def process(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """A worker that folds the WAL into the tables, against a bare loop over the same frames and stock Faust."""
    _run("process", bootstrap, quick, as_json)


@app.command()
def load(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """A load from a warm copy and the build of a cold one, against bare iteration and consumption."""
    _run("load", bootstrap, quick, as_json)


@app.command()
def activate(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """An activation's gate, against the same round trip by bare Kafka clients; activations by number of records."""
    _run("activate", bootstrap, quick, as_json)


@app.command()
def store(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """The message store, against the bare journal; time and memory of a load of its queues."""
    _run("store", bootstrap, quick, as_json)


@app.command()
def failover(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Take-over, hand-over and kill of a node, against the bare gate and a plain consumer group's reassignment."""
    _run("failover", bootstrap, quick, as_json)


@app.command()
def routes(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """A worker whose routes send every message on, against the same worker without routes."""
    _run("routes", bootstrap, quick, as_json)


@app.command()
def sources(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Records that a source takes into the message store, against a bare loop of Kafka transactions."""
    _run("sources", bootstrap, quick, as_json)


@app.command()
def spark(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Spark jobs over a WAL, against Spark's plain copy of it from Kafka to Parquet."""
    _run("spark", bootstrap, quick, as_json)


@app.command()
def audit(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """`verify --with-spark` of two journals, one ten times the other: how time and memory grow."""
    _run("audit", bootstrap, quick, as_json)


@app.command()
def shards(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """256 shards in one worker and a node beside it: memory, descriptors, threads, and the gate."""
    _run("shards", bootstrap, quick, as_json)


@app.command(name="amqp_engine")
def amqp_engine(quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """The AMQP engine in memory: processor time for a message in and out, against proton's classes for Python."""
    _run("amqp_engine", None, quick, as_json)


@app.command()
def selectors(quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Consumers with a selector: what each message of a queue costs, in queues of several lengths."""
    _run("selectors", None, quick, as_json)


def _run(name: str, bootstrap: str | None, quick: bool, as_json: bool) -> None:
    with exit_codes(), ended_by_sigterm_as_by_ctrl_c():
        settings = settings_from(bootstrap, None, None, None)
        servers = settings.bootstrap_servers if "bootstrap_servers" in settings.model_fields_set else None
        described = machine()
        figures = run_bench(name, servers, quick).as_figures()
    if as_json:
        print_json({"bench": name, **figures, "machine": described})
    else:
        print_facts(f"bench {name}", {**described, **figures})


if __name__ == "__main__":
    with standard_streams():
        set_up_logging(False)
        app(prog_name="python -m bench")
