"""`python -m bench NAME`: how fast it is on this machine, as ratios to what could be written without it."""

from __future__ import annotations

from typing import Annotated

import typer

from bench.report import machine, run_bench
from journal.cli.common import (
    BootstrapOption,
    JsonOption,
    ended_by_sigterm_as_by_ctrl_c,
    exit_codes,
    print_facts,
    print_json,
    settings_from,
)
from journal.cli.logs import set_up_logging
from journal.cli.standard_streams import standard_streams

QuickOption = Annotated[bool, typer.Option("--quick", help="Fewer rounds and operations: rough figures, soon.")]

app = typer.Typer(
    help="Measure ours and the limit in turn. Starts an embedded broker of its own unless brokers are configured.",
    no_args_is_help=True,
)


@app.command()
def append(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Appends, against confluent-kafka's producers."""
    _run("append", bootstrap, quick, as_json)


@app.command()
def process(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """A worker from WAL to tables, against a bare loop over the same frames, and stock Faust."""
    _run("process", bootstrap, quick, as_json)


@app.command()
def load(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Loading from a warm copy and building a cold one, against bare iteration and consumption."""
    _run("load", bootstrap, quick, as_json)


@app.command()
def activate(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """The gate, against the same way done bare; activation against live rows."""
    _run("activate", bootstrap, quick, as_json)


@app.command()
def store(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """The message store against the bare journal, and what its queues take to load and in memory."""
    _run("store", bootstrap, quick, as_json)


@app.command()
def failover(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Take-over, hand-over and kill, against the bare gate and a plain consumer group's reassignment."""
    _run("failover", bootstrap, quick, as_json)


@app.command()
def routes(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """A worker whose routes send every message on, against the same worker without routes."""
    _run("routes", bootstrap, quick, as_json)


@app.command()
def sources(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Records of a topic into the message store, against a bare loop that consumes and produces in transactions."""
    _run("sources", bootstrap, quick, as_json)


@app.command()
def spark(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """Spark jobs over a WAL, against Spark's plain copy of it from Kafka to Parquet."""
    _run("spark", bootstrap, quick, as_json)


@app.command()
def audit(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """`verify --with-spark` of journals of two sizes: time and memory, and how they grow."""
    _run("audit", bootstrap, quick, as_json)


@app.command()
def shards(bootstrap: BootstrapOption = None, quick: QuickOption = False, as_json: JsonOption = False) -> None:
    """256 shards in one worker and a node beside it: memory, descriptors, threads, and the gate."""
    _run("shards", bootstrap, quick, as_json)


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
