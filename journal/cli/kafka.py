"""`kafka-journal kafka` starts, stops and shows the embedded Apache Kafka of a directory.

Results go to standard output (with --json as one object), progress and errors to standard error. Exit codes: 0: done;
1: it failed, or does not run; 2: the command line is wrong; 130: it was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from journal.cli.common import ended_by_sigterm_as_by_ctrl_c, print_json, print_line, print_note
from journal.cli.embedded_default import DIRECTORY_VARIABLE
from journal.cli.tables import print_table
from journal.embedded.cluster import EmbeddedKafka, default_directory
from journal.embedded.config import BROKERS_MAX, check_request
from journal.embedded.launching import HEAP_MB, START_TIMEOUT_S
from journal.embedded.status import KafkaStatus
from journal.errors import EmbeddedKafkaError

app = typer.Typer(no_args_is_help=True, help="The embedded Apache Kafka: start, stop, status.")

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        envvar=DIRECTORY_VARIABLE,
        help="Where the brokers keep their data.",
        show_default="the user's data directory",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@app.command()
def start(
    directory: Directory = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=BROKERS_MAX,
            help="Number of broker processes.",
            show_default="what the directory holds, else 1",
        ),
    ] = None,
    ports: Annotated[
        str | None,
        typer.Option(help="A port for each broker, separated by commas.", show_default="the last ones, else free ones"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--property", "-p", metavar="KEY=VALUE", help="A broker property. Repeat the option for more."),
    ] = None,
    heap_mb: Annotated[int, typer.Option(min=128, help="Java heap of each broker.")] = HEAP_MB,
    timeout_s: Annotated[
        float, typer.Option(min=1, help="How many seconds to wait for the brokers to answer.")
    ] = START_TIMEOUT_S,
    as_json: Json = False,
) -> None:
    """Start the brokers, and print their bootstrap servers. They keep running when the command has ended."""
    chosen = directory or default_directory()
    own_ports = None if ports is None else parse_ports(ports)
    properties = parse_settings(settings or [])
    try:
        check_request(brokers or len(own_ports or (1,)), own_ports, properties)
    except EmbeddedKafkaError as error:
        raise typer.BadParameter(str(error)) from None
    with ended_by_sigterm_as_by_ctrl_c():
        kafka = EmbeddedKafka(chosen, brokers, own_ports, properties, heap_mb=heap_mb, start_timeout_s=timeout_s)
        already = kafka.status().running
        bootstrap_servers = kafka.start()
    if as_json:
        answer = {"bootstrap_servers": bootstrap_servers, "directory": str(kafka.directory), "already_running": already}
        print_json(answer)
        return
    print_note(f"Apache Kafka {'runs already' if already else 'runs'}; its data is in {kafka.directory}")
    print_line(bootstrap_servers)


@app.command()
def stop(directory: Directory = None, as_json: Json = False) -> None:
    """Stop the brokers, whoever started them. Their data stays."""
    chosen = directory or default_directory()
    stopped = EmbeddedKafka(chosen).stop()
    if as_json:
        print_json({"stopped": stopped, "directory": str(chosen.absolute())})
        return
    print_note(f"Apache Kafka in {chosen} {'is stopped' if stopped else 'did not run'}")


@app.command()
def status(directory: Directory = None, as_json: Json = False) -> None:
    """Show the brokers. The exit code is 1 unless all of them answer."""
    chosen = directory or default_directory()
    found = EmbeddedKafka(chosen).status()
    if as_json:
        print_json({"running": found.running, **asdict(found)})
    else:
        _show(found)
    raise typer.Exit(0 if found.running else 1)


def parse_ports(text: str) -> list[int]:
    """Ports from text, separated by commas. Raises typer.BadParameter."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of ports such as 9092,9093", param_hint="--ports") from None


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """Settings from texts KEY=VALUE. Raises typer.BadParameter."""
    properties = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--property")
        properties[key] = value
    return properties


def _show(found: KafkaStatus) -> None:
    if not found.brokers:
        print_note(f"no Kafka in {found.directory} yet: kafka-journal kafka start makes one")
        return
    rows = [
        (broker.broker, broker.state, broker.port, "" if broker.pid is None else broker.pid, broker.log)
        for broker in found.brokers
    ]
    print_table(f"Apache Kafka in {found.directory}", ("broker", "state", "port", "pid", "log"), rows)
    print_line(f"bootstrap servers: {found.bootstrap_servers}")
