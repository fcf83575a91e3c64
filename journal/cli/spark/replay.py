"""`kafka-journal spark replay` replays an archive, or a part of it, into another journal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from journal.cli.common import (
    Chosen,
    JsonOption,
    StepProgress,
    TakeOverOption,
    journal_command,
    operator,
    print_json,
    print_note,
)
from journal.cli.spark.session import further_parts, spark_session
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_facts, print_table
from journal.errors import ConfigError, StateError
from journal.words import called, counted

if TYPE_CHECKING:
    from journal.config import Settings
    from loaders.replay_state import ReplaySource
    from loaders.spark.replay.replaying import Filter, Selection


class ReplayInDoubt(Enum):
    """What happens to transactions that are in doubt where the archive ends."""

    KEEP = "keep"
    REFUSE = "refuse"


def add_to(app: typer.Typer) -> None:
    """Add the command to the group `spark`."""
    app.command("replay")(replay)


@journal_command
def replay(
    chosen: Chosen,
    path: Annotated[
        str, typer.Option("--from", metavar="PATH", help="The archive's path, as given to `spark archive --to`.")
    ],
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="JOURNAL", help="The journal to replay, if the archive has several."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only what was appended by this time, in ISO 8601; UTC unless it names another zone."
        ),
    ] = None,
    address: Annotated[list[str] | None, typer.Option(help="Only this address. Repeat the option for more.")] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Only this queue. Repeat the option for more.")] = None,
    ids: Annotated[
        str | None, typer.Option(metavar="FIRST-LAST", help="Only records with these ids, such as 5-9.")
    ] = None,
    epochs: Annotated[
        str | None, typer.Option(metavar="FIRST-LAST", help="Only what took effect in these epochs, such as 3-4.")
    ] = None,
    days: Annotated[
        str | None, typer.Option(metavar="DAY[/DAY]", help="Only what took effect on these days (YYYY-MM-DD, UTC).")
    ] = None,
    skip: Annotated[
        list[str] | None,
        typer.Option(metavar="SHARD:OFFSET", help="Leave out a record that was skipped after the archive was written."),
    ] = None,
    remap_ids: Annotated[
        bool, typer.Option("--remap-ids", help="Give the records new ids that the target issues.")
    ] = False,
    in_doubt: Annotated[
        ReplayInDoubt, typer.Option(help="Transactions in doubt: prepare them in the target too, or refuse to replay.")
    ] = ReplayInDoubt.KEEP,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what would be appended.")] = False,
    take_over: TakeOverOption = False,
    master: Annotated[str | None, typer.Option("--master", help="Spark's master, unless it is configured.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Replay an archive into the journal, which is active while the command lasts. Everything is replayed once, however
    often the command is run or killed, and whatever was consumed meanwhile."""
    asked: dict[str, Any] = {
        "until": _moment(until),
        "addresses": tuple(sorted(set(address or ()))),
        "queues": tuple(sorted(set(queue or ()))),
        "ids": _range(ids, "--ids"),
        "epochs": _range(epochs, "--epochs"),
        "days": _days(days),
        "skip": tuple(sorted(_place(each) for each in skip or ())),
    }
    settings = chosen.settings()
    uuid = _target_uuid(settings)
    parts = further_parts(path)
    with spark_session(f"replay into {settings.journal}", master, parts) as spark:
        # the imports are here, because only this command needs Spark
        from loaders.replay_state import require_other_journal
        from loaders.spark.replay.replaying import Filter, Selection, open_archive

        filter_ = Filter(**asked)
        selection = Selection(spark, path, open_archive(spark, path, source), filter_)
        of = source_of(selection, path, filter_, remapped=remap_ids)
        require_other_journal(of, uuid)
        if dry_run:
            _dry_run(settings, of, selection, as_json=as_json)
            return
        if in_doubt is ReplayInDoubt.REFUSE:
            _require_settled(selection)
        facts = _replayed(settings, of, selection, take_over=take_over)
    note_done(f"the replay into {called(settings.journal)} is done")
    if as_json:
        print_json(facts)
    else:
        print_facts(f"replayed into {called(settings.journal)}", {name: _shown(each) for name, each in facts.items()})


def source_of(selection: Selection, path: str, filter_: Filter, *, remapped: bool) -> ReplaySource:
    """The source, as the target notes it."""
    from loaders.replay_state import ReplaySource

    manifest = selection.manifest
    return ReplaySource(
        uuid=manifest.uuid,
        journal=manifest.journal,
        archive=manifest.archive,
        path=path,
        filter=filter_.digest(remapped=remapped),
        filtered=filter_.to_json(),
        ends=selection.ends,
        issued=selection.issued,
        remapped=remapped,
    )


def _require_settled(selection: Selection) -> None:
    if waiting := selection.in_doubt():
        raise StateError(
            f"transactions {', '.join(map(str, waiting))} are in doubt where the archive ends: settle them in the "
            "source and archive that, or replay with --in-doubt keep; nothing was replayed"
        )


def _replayed(settings: Settings, of: ReplaySource, selection: Selection, *, take_over: bool) -> dict[str, Any]:
    from journal.cli.activating import activated_journal
    from loaders.replay import Replaying
    from loaders.replay_state import ReplayTarget, Selected

    target = ReplayTarget()
    with (
        StepProgress() as progress,
        activated_journal(settings, take_over=take_over, progress=progress, loader=target) as (journal, report),
    ):
        began = time.monotonic()
        replaying = Replaying(
            journal,
            settings.limits,
            of,
            target,
            operator=operator(),
            now_ms=lambda: time.time() * 1000,
            told=lambda operations: progress("replay", operations, 0),
        )
        reached, kept = replaying.progress.reached, frozenset(replaying.progress.kept)
        rows = selection.operations(reached, kept).toLocalIterator(prefetchPartitions=True)
        result = replaying.run(Selected(*row) for row in rows)
        seconds = time.monotonic() - began
    return {
        **_about(of),
        **asdict(result),
        "epoch": report.epoch,
        "offsets": [of.ends[shard] for shard in sorted(of.ends)],
        "seconds": round(seconds, 3),
    }


def _dry_run(settings: Settings, of: ReplaySource, selection: Selection, *, as_json: bool) -> None:
    """Count what a run would append now, after earlier runs."""
    from journal.cli.reading import loaded_state
    from loaders.replay_state import Progress, ReplayTarget

    target = ReplayTarget()
    with loaded_state(settings) as (state, _):
        state.tell(target)
    progress = Progress(of, target)
    rows = [row.asDict() for row in selection.counts(progress.reached, frozenset(progress.kept))]
    if as_json:
        print_json({**_about(of), "before": progress.operations, "counts": rows})
        return
    columns = ("shard", "type", "in_doubt", "operations", "bytes")
    cells = [[_shown(row[name]) for name in columns] for row in rows]
    print_table(f"would be replayed into {called(settings.journal)}", columns, cells)
    if progress.operations:
        print_note(f"replayed before: {counted(progress.operations, 'operation')}")


def _about(of: ReplaySource) -> Mapping[str, Any]:
    return {
        "source": of.journal,
        "source_uuid": of.uuid.hex(),
        "archive": of.archive.hex(),
        "path": of.path,
        "filter": of.filtered,
        "remapped": of.remapped,
    }


def _target_uuid(settings: Settings) -> bytes:
    from journal.cli.reading import opened_journal

    with opened_journal(settings) as (_, rows):
        return rows.require_identity(settings.journal).journal


# ---- options -----------------------------------------------------------------------------------------------


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(f"--until {text}: not a time such as 2024-05-17T08:30:00Z ({error})") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _range(text: str | None, option: str) -> tuple[int, int] | None:
    if text is None:
        return None
    first, dash, last = text.partition("-")
    if not dash:
        last = first
    if not (first.isdigit() and last.isdigit() and int(first) <= int(last)):
        raise ConfigError(f"{option} {text}: expected FIRST-LAST, such as 3-7")
    return int(first), int(last)


def _days(text: str | None) -> tuple[date, date] | None:
    if text is None:
        return None
    first, _, last = text.partition("/")
    try:
        days = date.fromisoformat(first), date.fromisoformat(last or first)
    except ValueError as error:
        raise ConfigError(f"--days {text}: expected YYYY-MM-DD or YYYY-MM-DD/YYYY-MM-DD ({error})") from None
    if days[1] < days[0]:
        raise ConfigError(f"--days {text}: the last is before the first")
    return days


def _place(text: str) -> tuple[int, int]:
    shard, colon, offset = text.partition(":")
    if not (colon and shard.isdigit() and offset.isdigit()):
        raise ConfigError(f"--skip {text}: expected SHARD:OFFSET, such as 0:1234")
    return int(shard), int(offset)


def _shown(value: object) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
