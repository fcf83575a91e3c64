"""`kafka-journal verify` folds the WAL again, with code of its own, and compares the result with the tables and a load.

One shard is compared at a time, so that memory holds one shard's state. A load's state is first written into files by
shard, in one pass. The load goes to the WAL's end, so that frames that no worker has applied yet are compared too. A
shard that is stopped or cannot be loaded is reported, and the rest is still checked. The report also says how many WAL
records could not be compared.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from journal.cli.common import (
    PROGRESS_AFTER_S,
    Chosen,
    JsonOption,
    StepProgress,
    ended_by_sigterm_as_by_ctrl_c,
    journal_command,
    print_json,
    print_line,
)
from journal.cli.reading import ShownLoader, loaded_snapshot, opened_journal
from journal.cli.script import prepared_line, record_line
from journal.cli.text import differences_left_out, records_skipped
from journal.cli.verify.wal import WatchedWal
from journal.config import Settings
from journal.errors import (
    ConfigError,
    CorruptionError,
    CountError,
    DeadlineError,
    FrameError,
    FullError,
    GapError,
    LocalDamageError,
    RowError,
    StaleReadError,
)
from journal.kafka.ports import Kafka
from journal.load.loading import LoadCounts, LoadedUpdate
from journal.topics.control_rows import ControlRows
from journal.topics.marks import FoundMark
from journal.topics.names import wal_topic
from journal.upkeep.shard_reading import ShardReading
from journal.upkeep.stops import look_ahead
from journal.v1.journal_pb2 import Mark, Operation
from journal.verify import Loaded, Report, ShardReport, verify_shard
from journal.verify.base import base_of
from journal.verify.differences import KEPT_ALL, KEPT_MAX, Differences
from journal.verify.state import Finding, shard_of
from journal.words import counted

SparkOption = Annotated[
    bool, typer.Option("--with-spark", help="Let Spark fold the WAL, for journals that are too large for one process.")
]
MasterOption = Annotated[
    str | None, typer.Option("--master", help="Spark's master URL. By default that of spark-defaults, or this machine.")
]
ArchiveOption = Annotated[
    str | None, typer.Option("--archive", help="With --with-spark: the archive that has what was trimmed.")
]
DifferencesMaxOption = Annotated[
    int,
    typer.Option(
        "--differences-max",
        min=0,
        metavar="N",
        help="Name this many differences of each sort in a shard and count the rest; 0 names all.",
    ),
]


log = logging.getLogger(__name__)


@journal_command
def verify(
    chosen: Chosen,
    with_spark: SparkOption = False,
    master: MasterOption = None,
    archive: ArchiveOption = None,
    differences_max: DifferencesMaxOption = KEPT_MAX,
    as_json: JsonOption = False,
) -> None:
    """Check the tables and the loaded state against the WAL, with code that shares nothing with the engine.

    It names differences and counts all of them; the exit code is 1 if there is one. A record that `repair skip` has
    skipped is named and is no difference. It needs no worker and disturbs nobody. With Spark, the tables are checked
    and the loaded state is not.
    """
    if not with_spark and (master is not None or archive is not None):
        raise ConfigError("--master and --archive go with --with-spark")
    settings = chosen.settings()
    kept_max = differences_max or KEPT_ALL
    if with_spark:
        # the import is here, because only this option needs Spark
        from journal.cli.verify.by_spark import audited, show

        show(audited(settings, master, archive, kept_max), as_json=as_json)
    with opened_journal(settings) as (kafka, rows), StepProgress(after_s=PROGRESS_AFTER_S) as progress:
        report = _Verification(kafka, settings, rows, progress, kept_max).run()
    if as_json:
        print_json(report.to_json())
    else:
        for line in [*report.lines(), *summary(report)]:
            print_line(line)
    raise typer.Exit(0 if report.agrees else 1)


def summary(report: Report) -> list[str]:
    """The last lines: what was compared, and the result."""
    shards = report.shards
    records, frames = sum(shard.records for shard in shards), sum(shard.wal_records for shard in shards)
    differences = sum(shard.differences.total for shard in shards)
    findings = sum(len(shard.findings) for shard in shards)
    lines = [f"{counted(len(shards), 'shard')}, {counted(frames, 'WAL record')}, {counted(records, 'record')}"]
    if report.left_out:
        lines.append(differences_left_out(report.left_out))
    if report.skipped:
        lines.append(records_skipped(report.skipped))
    if report.agrees:
        lines.append("the WAL, the tables and the loaded state agree" + ("" if report.complete else " where checked"))
    else:
        lines.append(
            f"{counted(differences, 'difference')}, {counted(findings, 'place')} where the WAL cannot be applied"
        )
    return lines


# ---- the result of a load ------------------------------------------------------------------------------------


class _LoadToFiles:
    """A loader that writes each shard's entries, as `dump` prints them, to a file of its own."""

    def __init__(self, files: Sequence[TextIO]) -> None:
        self._files = files

    def begin(self, marks: Mapping[int, Mark]) -> None: ...

    def record(
        self, record_id: int, kind: int, data: bytes, updates: Sequence[LoadedUpdate], position: tuple[int, int, int]
    ) -> None:
        self._write(shard_of(record_id, len(self._files)), record_line(record_id, kind, data, updates))

    def prepared(self, tx: int, data: bytes, operations: Sequence[Operation]) -> None:
        for shard in range(len(self._files)):
            self._write(shard, prepared_line(tx, data, operations))

    def complete(self, counts: LoadCounts) -> None: ...

    def _write(self, shard: int, entry: Mapping[str, Any]) -> None:
        self._files[shard].write(json.dumps(entry, separators=(",", ":")) + "\n")


@dataclass(frozen=True, slots=True)
class _Load:
    """A load in files: the WAL offset of each shard, or why there is no load."""

    directory: Path
    offsets: Mapping[int, int]
    missing: str = ""
    refused: bool = False
    """The reason for which no load is possible, if the rows are at fault."""
    behind: CorruptionError | FullError | StaleReadError | None = None
    """The reason for which the load does not reach the WAL's end, if the WAL is at fault."""

    @contextmanager
    def of(self, shard: int) -> Iterator[Loaded | None]:
        if self.missing:
            yield None
            return
        with _shard_file(self.directory, shard).open(encoding="utf-8") as lines:
            yield Loaded(self.offsets[shard], (json.loads(line) for line in lines))


def _shard_file(directory: Path, shard: int) -> Path:
    return directory / f"{shard}.jsonl"


# ---- the verification --------------------------------------------------------------------------------------


class _Verification:
    """One run over all shards."""

    def __init__(
        self, kafka: Kafka, settings: Settings, rows: ControlRows, progress: StepProgress, kept_max: int
    ) -> None:
        self._kafka = kafka
        self._settings = settings
        self._rows = rows
        self._identity = rows.require_identity(settings.journal)
        self._timeout_s = settings.request_timeout_ms / 1000
        self._progress = progress
        self._kept_max = kept_max
        self._reading = ShardReading(kafka, settings, progress)

    def run(self) -> Report:
        with ended_by_sigterm_as_by_ctrl_c(), tempfile.TemporaryDirectory(prefix="kafka-journal-") as directory:
            ends = self._ends()
            load = self._load(Path(directory))
            return Report([self._verify(shard, load, end) for shard, end in ends.items()])

    def _ends(self) -> dict[int, int]:
        """The end of each shard's WAL when the verification began. Everything up to there is checked."""
        reader = self._kafka.reader(wal_topic(self._settings.journal))
        try:
            return dict(reader.ends(tuple(range(self._identity.shards)), self._timeout_s))
        finally:
            reader.close()

    def _load(self, directory: Path) -> _Load:
        """The loaded state in files, or the reason why there is none."""
        shards = range(self._identity.shards)
        try:
            for shard in shards:
                found = self._reading.newest_mark(shard)
                if next(self._reading.strays(found, shard), None) is not None:
                    return _Load(directory, {}, f"rows behind the last mark of shard {shard} keep a load from its end")
            try:
                return self._load_from_sound_copy(directory, now=True)
            except (RowError, CountError):
                raise
            except (
                CorruptionError,
                FullError,
                StaleReadError,
            ) as error:  # the damage is after the marks, so the tables may be sound
                return replace(self._load_from_sound_copy(directory, now=False), behind=error)
        except (CorruptionError, FullError, DeadlineError) as error:
            behind = error if isinstance(error, FrameError | GapError) else None
            return _Load(directory, {}, str(error), refused=isinstance(error, RowError | CountError), behind=behind)

    def _load_from_sound_copy(self, directory: Path, *, now: bool) -> _Load:
        """Load as `_load_to` does. If the copy differs from its marks, it is built anew once, because only the copy may
        be at fault."""
        try:
            return self._load_to(directory, now=now)
        except LocalDamageError as error:
            log.warning("%s", error)
            return self._load_to(directory, now=now)

    def _load_to(self, directory: Path, *, now: bool) -> _Load:
        """Load at the tables' marks or, with `now`, at the WAL's end."""
        with ExitStack() as stack:
            shards = range(self._identity.shards)
            files = [stack.enter_context(_shard_file(directory, shard).open("w")) for shard in shards]
            snapshot = loaded_snapshot(self._settings, self._kafka, self._rows, now=now, progress=self._progress)
            state = stack.enter_context(snapshot)
            state.tell(ShownLoader(_LoadToFiles(files), self._progress))
            return _Load(directory, {shard: mark.offset for shard, mark in state.marks.items()})

    def _verify(self, shard: int, load: _Load, end: int) -> ShardReport:
        try:
            return self._compare(shard, load, end)
        except CorruptionError as error:
            finding = Finding(error.topic, error.partition, error.offset, error.reason)
            unchecked = ["it cannot be read to its end"]
            return ShardReport(shard, -1, 0, 0, 0, 0, Differences(shard), [finding], unchecked)

    def _compare(self, shard: int, load: _Load, end: int) -> ShardReport:
        found: list[FoundMark] = []
        wal = WatchedWal(self._reading.wal(shard), lambda: max(found[-1].mark.offset, load.offsets.get(shard, -1)))
        with load.of(shard) as loaded:
            report = verify_shard(
                shard,
                self._identity.shards,
                self._identity.journal,
                wal=wal,
                table=self._reading.table(shard, found),
                loaded=loaded,
                wal_topic=wal_topic(self._settings.journal),
                kept_max=self._kept_max,
                base=base_of(self._rows.trims.get(shard), self._reading.wal_start(shard)),
            )
        if load.refused and shard == 0:
            report.differences.add("loaded state", "of all shards", "rows that can be loaded", load.missing)
        elif load.missing:
            report.unchecked.append(f"the loaded state: {load.missing}")
        for record in self._reading.strays(found[-1], shard):
            key = (record.key or b"").hex()
            report.differences.add(
                "row", f"key {key} at {record.offset}", "a mark behind it", "none: no worker wrote it"
            )
        left = wal.left(report.offset, end)
        if left:
            why = f": {load.behind}" if load.behind and not load.missing else ""
            report.unchecked.append(left + why)
        self._check_ahead(found[-1].mark, (load.behind, wal.damage), report)
        return report

    def _check_ahead(self, mark: Mark, met: Sequence[Exception | None], report: ShardReport) -> None:
        """Also report a record after the mark that stops the shard, or that a load or further reading has `met`."""
        skips = {offset for number, offset in self._rows.skips if number == mark.shard}
        identity, timeout_s = self._identity, self._timeout_s
        stop = look_ahead(self._kafka, identity, mark, skips, clock=time.monotonic, timeout_s=timeout_s).stop
        places = [] if stop is None else [(stop.offset, stop.reason)]
        for error in met:
            if isinstance(error, CorruptionError) and error.partition == mark.shard and error.offset not in skips:
                places.append((error.offset, error.reason))
        for offset, reason in places:
            if all(finding.offset != offset for finding in report.findings):
                report.findings.append(Finding(wal_topic(self._settings.journal), mark.shard, offset, reason))
