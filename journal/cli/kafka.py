"""`kafka-journal kafka` starts, stops and shows the embedded Apache Kafka of a directory, and makes topics there.

Results go to standard output (with --json as one object), progress and errors to standard error. Exit codes: 0: done;
1: it failed, or does not run; 2: the command line is wrong; 130: it was interrupted.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from journal.cli.common import ended_by_sigterm_as_by_ctrl_c, print_json, print_line, print_note
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_table
from journal.embedded.cluster import EmbeddedKafka, default_directory
from journal.embedded.config import BROKERS_MAX, check_request
from journal.embedded.default import DIRECTORY_VARIABLE
from journal.embedded.launching import HEAP_MB, START_TIMEOUT_S
from journal.embedded.status import KafkaStatus
from journal.errors import EmbeddedKafkaError

app = typer.Typer(no_args_is_help=True, help="The embedded Apache Kafka: start, stop, status, topic.")

TOPIC_TIMEOUT_S = 15.0

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
    note_done(f"Apache Kafka runs at {bootstrap_servers}")
    if as_json:
        answer = {"bootstrap_servers": bootstrap_servers, "directory": str(kafka.directory), "already_running": already}
        print_json(answer)
        return
    print_note(f"Apache Kafka {'runs already' if already else 'runs'}; its data is in {kafka.directory}")
    print_line(bootstrap_servers)


@app.command()
def topic(
    name: Annotated[str, typer.Argument(help="The topic's name.")],
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions.", show_default="1, or what the topic has")
    ] = None,
    replication: Annotated[int, typer.Option(min=1, help="Number of replicas of a new topic.")] = 1,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A setting of the topic. Repeat the option for more."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the topic and all that is in it.")] = False,
    directory: Directory = None,
    as_json: Json = False,
) -> None:
    """Make a topic, or give one that is there more partitions and other settings. The brokers must run."""
    # other commands of this group talk to no Kafka, and its clients take a while to import
    from journal.kafka.clients import KafkaClients

    settings = parse_settings(config or [], option="--config")
    if delete and (partitions or settings):
        raise typer.BadParameter("--delete takes no --partitions and no --config")
    with closing(KafkaClients(_running(directory)).cluster()) as cluster:
        is_there = name in cluster.describe([name], TOPIC_TIMEOUT_S)
        done = "deleted" if delete else "changed" if is_there else "made"
        if delete:
            cluster.delete_topic(name, TOPIC_TIMEOUT_S)
        elif is_there:
            cluster.change(name, partitions or 0, settings, TOPIC_TIMEOUT_S)
        else:
            cluster.create(name, partitions or 1, replication, settings, TOPIC_TIMEOUT_S)
    note_done(f"topic {name} is {done}")
    if as_json:
        print_json({"topic": name, "done": done})
    else:
        print_line(f"topic {name} is {done}")


def _running(directory: Path | None) -> str:
    """The bootstrap servers of the directory's brokers. Raises EmbeddedKafkaError unless they run."""
    kafka = EmbeddedKafka(directory or default_directory())
    servers = kafka.running_servers()
    if servers is None:
        raise EmbeddedKafkaError(f"no Kafka runs in {kafka.directory}: {_start(kafka.directory)}")
    return servers


def _start(directory: Path) -> str:
    chosen = [] if directory == default_directory() else ["--dir", shlex.quote(str(directory))]
    return " ".join(["kafka-journal kafka start", *chosen])


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


def parse_settings(settings: Sequence[str], option: str = "--property") -> dict[str, str]:
    """Settings from texts KEY=VALUE. Raises typer.BadParameter."""
    properties = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint=option)
        properties[key] = value
    return properties


def _show(found: KafkaStatus) -> None:
    if not found.brokers:
        print_note(f"no Kafka in {found.directory} yet: {_start(Path(found.directory))} makes one")
        return
    rows = [
        (broker.broker, broker.state, broker.port, "" if broker.pid is None else broker.pid, broker.log)
        for broker in found.brokers
    ]
    print_table(f"Apache Kafka in {found.directory}", ("broker", "state", "port", "pid", "log"), rows)
    print_line(f"bootstrap servers: {found.bootstrap_servers}")
