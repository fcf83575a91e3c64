"""`kafka-journal routes replay` sends again what a route sent for a range of messages, marked as replayed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from journal.cli.common import (
    PROGRESS_AFTER_S,
    Chosen,
    JsonOption,
    StepProgress,
    journal_command,
    print_json,
    print_line,
)
from journal.cli.reading import opened_journal
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_table
from journal.errors import InvalidOperationError
from journal.kafka.clients import kafka_of
from journal.kafka.ports import Kafka
from journal.routing.parts import start_ms
from journal.words import counted
from streams.routes.replay import RouteReplay, ShardReplayed
from streams.routes.replay_range import ReplayRange, range_of_ids, range_of_time
from streams.routes.targets import Sizes


def add_replay(app: typer.Typer) -> None:
    """Add the command to those of `routes`."""
    app.command("replay")(replay)


@journal_command
def replay(
    chosen: Chosen,
    route: Annotated[str, typer.Argument(help="The route's name.")],
    from_: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="MOMENT", help="Messages that took effect at this time or later: 2026-01-31T12:00:00Z."
        ),
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="MOMENT", help="Messages that took effect before this time.")
    ] = None,
    ids: Annotated[
        str | None,
        typer.Option(
            metavar="FIRST[-LAST]", help="Instead of a time range: messages with ids in this range, both included."
        ),
    ] = None,
    again: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Send everything for the N-th time, although earlier runs have sent it.",
            show_default=False,
        ),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be sent.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Send again what a route sent for a range of messages, marked as replayed. It reads the WAL.

    After an interruption, run it again with the same options: it sends what is left, and nothing twice.
    """
    settings = chosen.settings()
    range_ = _range(from_, to, ids)
    clients = kafka_of(settings)

    def sized(sizes: Sizes) -> Kafka:
        return clients.sized(record_bytes_max=sizes.record_bytes_max, batch_bytes_max=sizes.batch_bytes_max)

    with opened_journal(settings) as (kafka, rows), StepProgress(after_s=PROGRESS_AFTER_S) as progress:
        run = RouteReplay(
            settings, rows, kafka, route, range_, sized=sized, again=again, dry_run=dry_run, progress=progress
        )
        complete = False
        try:
            run.run()
            complete = True
        finally:
            progress.hide()
            if complete or run.replayed:
                facts = {"journal": settings.journal, "route": route, "again": again, "dry_run": dry_run}
                _print(facts | {"complete": complete}, range_, run.replayed, as_json=as_json)


def _range(from_: str | None, to: str | None, ids: str | None) -> ReplayRange:
    if ids is not None:
        if from_ is not None or to is not None:
            raise InvalidOperationError("a range is of ids (--ids) or of time (--from and --to)")
        first, dash, last = ids.partition("-")
        last = last if dash else first
        if not first.isdecimal() or not last.isdecimal():
            raise InvalidOperationError(f"--ids {ids}: expected an id, or two with a - between them")
        return range_of_ids(int(first), int(last))
    if from_ is None or to is None:
        raise InvalidOperationError("say which messages: --from and --to, or --ids")
    return range_of_time(_moment("--from", from_), _moment("--to", to))


def _moment(option: str, text: str) -> int:
    try:
        found = start_ms(text)
    except ValueError as error:
        raise InvalidOperationError(f"{option}: {error}") from None
    if found is None:
        raise InvalidOperationError(f"{option} {text}: expected a moment, 2026-01-31T12:00:00Z")
    return found


# ---- the result
# ---------------------------------------------------------------------------------------------------------


COLUMNS = ("shard", "from WAL offset", "to", "messages", "sent", "refused", "dead letters")


def _print(facts: dict[str, Any], range_: ReplayRange, done: Sequence[ShardReplayed], *, as_json: bool) -> None:
    total = {name: sum(getattr(each, name) for each in done) for name in ("messages", "sent", "dead_letters")}
    if total["sent"] and not facts["dry_run"]:
        note_done(f"sent by the replay: {counted(total['sent'], 'record')}")
    if as_json:
        refused: Counter[str] = sum((each.refused for each in done), Counter())
        shards = [_shard_json(each) for each in done]
        asked = {name: value for name, value in range_._asdict().items() if name.endswith("id") is range_.of_ids}
        print_json(facts | {"range": asked} | total | {"refused": dict(sorted(refused.items())), "shards": shards})
        return
    print_table(f"route {facts['route']}, {range_}", COLUMNS, [_row(each) for each in done])
    would = "would be sent" if facts["dry_run"] else "sent"
    letters = counted(total["dead_letters"], "dead letter")
    print_line(f"{would}: {counted(total['sent'], 'record')}, and {letters}")
    if facts["complete"] and not total["messages"]:
        if any(each.began_at for each in done):
            print_line(f"earlier runs have sent it all: --again {facts['again'] + 1} sends it once more")
        else:
            print_line("no message that has taken effect is in the range")


def _shard_json(done: ShardReplayed) -> dict[str, Any]:
    return {
        "shard": done.shard,
        "began_at": done.began_at,
        "end": done.end,
        "messages": done.messages,
        "sent": done.sent,
        "refused": dict(sorted(done.refused.items())),
        "dead_letters": done.dead_letters,
    }


def _row(done: ShardReplayed) -> Sequence[object]:
    refused = ", ".join(f"{reason} {count:,}" for reason, count in sorted(done.refused.items()))
    counts = (f"{done.messages:,}", f"{done.sent:,}", refused or "0", f"{done.dead_letters:,}")
    return done.shard, done.began_at, done.end, *counts
