"""`kafka-journal routes` shows the configured routes and sources, and what they would make of a message."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line
from journal.cli.operations.typed_values import METAVAR, TYPES_HELP, parse_values
from journal.cli.optional_value import OptionalValueCommand
from journal.cli.places import NodeOption
from journal.cli.routes.live import live_message
from journal.cli.routes.replay import add_replay
from journal.cli.routes.running import add_running
from journal.cli.routes.sources import add_sources
from journal.cli.tables import print_table
from journal.cli.text import printable
from journal.config import Settings
from journal.errors import InvalidOperationError
from journal.limits import ID_MAX
from journal.process.clocks import wall_ms
from journal.routing.headers import header_value
from journal.routing.outcomes import Header, OnError, OutgoingRecord, RouteRefusal
from journal.routing.record_in import Sources
from journal.routing.router import Router, RouteVerdict
from journal.routing.sending import Body
from journal.routing.templates import text_of
from journal.store.message_records import encode_message
from journal.store.model import PRIORITY_DEFAULT, Message
from journal.topics.names import OwnTopics
from journal.words import called, counted

app = typer.Typer(no_args_is_help=True, help="Messages to Kafka topics and back: list, test, watch and replay routes.")
add_running(app)
add_replay(app)
add_sources(app)

_TEST_ID = 1


# ---- list ----------------------------------------------------------------------------------------------------------


@app.command("list", cls=OptionalValueCommand)
@journal_command
def list_(chosen: Chosen, as_json: JsonOption = False) -> None:
    """List the configured routes and sources, and check them. No broker is asked."""
    settings = chosen.given()
    routing = settings.routing
    _router(settings)
    Sources(routing, journal=settings.journal, own_topics=OwnTopics(settings.journal))
    if as_json:
        print_json(routing.model_dump(mode="json"))
        return
    if not routing.routes and not routing.sources:
        print_line(f"{called(settings.journal)} has no routes: [[routing.routes]] in the file of --config makes one")
        return
    if routing.routes:
        print_table(f"routes of {called(settings.journal)}, in order", ROUTE_COLUMNS, _route_rows(settings))
    if routing.sources:
        print_table(f"sources of {called(settings.journal)}", SOURCE_COLUMNS, _source_rows(settings))


ROUTE_COLUMNS = ("route", "address", "filter", "topic", "key", "value", "headers", "on error", "stop")
SOURCE_COLUMNS = ("source", "topics", "address", "value", "headers", "start", "on error", "")


def _route_rows(settings: Settings) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    for route in settings.routing.routes:
        for at, target in enumerate(route.targets):
            what = (target.topic, ", else ".join(target.key), target.value, " ".join(target.headers) or "none")
            if at:
                rows.append(("", "", "", *what, "", ""))
            else:
                stop = "stop" if route.stop else ""
                rows.append((route.name, route.address, route.filter, *what, route.on_error.value, stop))
    return rows


def _source_rows(settings: Settings) -> list[Sequence[object]]:
    rows: list[Sequence[object]] = []
    for source in settings.routing.sources:
        topics = " ".join(source.topics) + (f" /{source.pattern}/" if source.pattern else "")
        address = "where the request said" if source.replies else source.address
        what = (topics.strip(), address, source.value, " ".join(source.headers) or "none", source.start)
        rows.append((source.name, *what, source.on_error.value, "two-way" if source.two_way else ""))
    return rows


# ---- test ----------------------------------------------------------------------------------------------------------


@app.command("test", cls=OptionalValueCommand)
@journal_command
def try_out(
    chosen: Chosen,
    address: Annotated[str | None, typer.Option(help="The message's address.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(
            metavar=METAVAR,
            help=f"A header or property; may be repeated. {TYPES_HELP}",
        ),
    ] = None,
    body: Annotated[str, typer.Option(help="The message's body, or @FILE.")] = "",
    priority: Annotated[
        int | None, typer.Option(min=0, max=9, help="The message's priority.", show_default=str(PRIORITY_DEFAULT))
    ] = None,
    message_id: Annotated[
        int | None,
        typer.Option(
            "--id",
            min=1,
            max=ID_MAX,
            help="Instead of the other options: test the message with this id in the journal.",
        ),
    ] = None,
    node: NodeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which routes a message would match, and what they would send. Nothing is sent; only --id asks a broker.

    With --node a running node reads the message, without a load of the tables. The exit code is 1 if a route would stop
    its shard.
    """
    settings, stop = chosen.given() if message_id is None else chosen.settings(), ""
    sample = (address, header or None, body or None, priority)
    if message_id is not None:
        if any(each is not None for each in sample):
            raise InvalidOperationError("a message is either in the journal (--id) or described by the other options")
        with live_message(settings, message_id, node) as found:
            router = _router(settings, found.targets.bytes_max, found.body)
            verdicts, outcomes = router.explain(message_id, found.data), found.routed(router)
            stop = found.stop(settings, router)
    elif node is not None:
        raise InvalidOperationError("a node is asked for a message that it has: --id")
    elif address is None:
        raise InvalidOperationError("say which message: --address and what it has, or --id")
    else:
        headers, properties = parse_values(header or (), "--header")
        wanted = PRIORITY_DEFAULT if priority is None else priority
        data = encode_message(
            Message(address, _body(body), headers, properties, priority=wanted, timestamp=int(wall_ms()))
        )
        router = _router(settings)
        verdicts, outcomes = router.explain(_TEST_ID, data), router.route(_TEST_ID, data)
    fails = any(isinstance(each, RouteRefusal) and each.on_error is OnError.FAIL for each in outcomes)
    if as_json:
        routes = [verdict._asdict() for verdict in verdicts]
        print_json({"routes": routes, "outcomes": [_line(each) for each in outcomes], "stop": stop or None})
    else:
        _print(settings, verdicts, outcomes)
        if stop and not fails:
            print_line(f"the shard would stop here: {stop}")
    if stop or fails:
        raise typer.Exit(1)


def _router(settings: Settings, bytes_max: Mapping[str, int] | None = None, body: Body | None = None) -> Router:
    own = OwnTopics(settings.journal)
    return Router(settings.routing, journal=settings.journal, own_topics=own, bytes_max=bytes_max).reading(body)


def _body(text: str) -> bytes:
    if not text.startswith("@"):
        return text.encode()
    try:
        return Path(text[1:]).read_bytes()
    except OSError as error:
        raise InvalidOperationError(f"--body {text}: {error.strerror}") from None


# ---- what would be sent --------------------------------------------------------------------------------------------


def _line(outcome: OutgoingRecord | RouteRefusal) -> Mapping[str, Any]:
    if isinstance(outcome, RouteRefusal):
        return {
            "route": outcome.route,
            "topic": outcome.topic,
            "refused": outcome.reason.value,
            "detail": outcome.detail,
            "on_error": outcome.on_error.value,
            "dead_letter": None if outcome.dead_letter is None else _line(outcome.dead_letter),
        }
    return {
        "route": outcome.route,
        "topic": outcome.topic,
        "key": _bytes_json(outcome.key),
        "value": _bytes_json(outcome.value),
        "headers": [{"name": name, "value": _bytes_json(value)} for name, value in outcome.headers],
        "partitioner": outcome.rule.name if outcome.rule.fixed < 0 else f"{outcome.rule.name}:{outcome.rule.fixed}",
        "request": None if outcome.request is None else outcome.request._asdict(),
    }


def _bytes_json(value: bytes | None) -> object:
    """Bytes as text if they are printable, otherwise in base64."""
    if value is None:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    return text if text.isprintable() and (text or not value) else {"base64": base64.b64encode(value).decode()}


def _print(
    settings: Settings, verdicts: Sequence[RouteVerdict], outcomes: Sequence[OutgoingRecord | RouteRefusal]
) -> None:
    if not verdicts:
        print_line(f"{called(settings.journal)} has no routes: [[routing.routes]] in the file of --config makes one")
        return
    print_table("routes, in order", ("route", "matches"), verdicts)
    for outcome in outcomes:
        if isinstance(outcome, RouteRefusal):
            print_line(f"{outcome.route} -> {outcome.topic or '?'}: refused ({outcome.reason.value}): {outcome.detail}")
            print_line(_policy(outcome))
        else:
            _print_record(outcome)
    if not outcomes:
        print_line("nothing would be sent")


def _policy(refusal: RouteRefusal) -> str:
    match refusal.on_error:
        case OnError.FAIL:
            return "  the shard would stop here (on_error fail)"
        case OnError.SKIP:
            return "  it would be passed over, and counted"
        case OnError.DEAD_LETTER:
            return f"  it would go to {refusal.dead_letter.topic if refusal.dead_letter else ''}, with the reason"


def _print_record(record: OutgoingRecord) -> None:
    rows: list[tuple[str, str]] = [
        ("key", "none" if record.key is None else _shown(record.key)),
        ("value", f"{counted(len(record.value or b''), 'byte')}: {_shown(record.value or b'')}"),
        *((name, _header(name, value)) for name, value in _sorted(record.headers)),
    ]
    print_table(f"{record.route} -> {record.topic}", ("", ""), rows)


def _sorted(headers: Sequence[Header]) -> list[Header]:
    return sorted(headers, key=lambda header: header[0])


def _header(name: str, value: bytes | None) -> str:
    said = b"" if value is None else header_value(name, value)
    return _shown(said) if isinstance(said, bytes) else str(text_of(said))


def _shown(value: bytes) -> str:
    return printable(value, 200)
