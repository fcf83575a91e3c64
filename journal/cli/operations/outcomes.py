"""Kept outcomes of global transactions: found in a state's rows, shown as `--json` prints them, and forgotten
by hand."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from journal.cli.operations.in_doubt import xid_line
from journal.cli.operations.ports import Json
from journal.cli.script import encode_data
from journal.errors import RowError, XidError
from journal.fold.rows import Base
from journal.process.commands import command
from journal.process.progress import Progress, no_progress
from journal.v1.journal_pb2 import Record
from journal.v1.store_pb2 import OUTCOME, Outcome
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG
from journal.xa.codes import XaCode
from journal.xa.coordinator import FORMAT_ID, STORE
from journal.xa.loading import OutcomeFound
from journal.xa.outcomes import COMMITTED, HEURISTIC_COMMIT, KeptOutcome, decode_outcome
from journal.xa.ports import OutcomeRow
from journal.xa.resource import XaResource
from journal.xa.xid import text

_PROGRESS_ROWS = 4096


def kept_outcomes(base: Base, progress: Progress) -> list[KeptOutcome]:
    """The outcomes of a state, in order of record. All records are looked at."""
    found = []
    for count, (key, value) in enumerate(base.scan(RECORD_TAG)):
        if count % _PROGRESS_ROWS == 0:
            progress("records", count, 0)
        if len(key) != RECORD_KEY_BYTES:
            continue
        record = Record.FromString(value)
        if record.kind == OUTCOME:
            with suppress(RowError):  # another broker may use this kind for something else
                found.append(decode_outcome(record.id, record.data))
    return found


def outcomes_among(rows: Sequence[OutcomeRow]) -> list[OutcomeRow]:
    """The rows of a load that are outcomes; another broker may use the kind for something else."""
    found = []
    for row in rows:
        with suppress(RowError):
            decode_outcome(row.record_id, row.data)
            found.append(row)
    return found


def outcome_rows(base: Base) -> list[OutcomeFound]:
    """Outcomes as a load finds them."""
    return [OutcomeFound(kept.record_id, kept.encoded()) for kept in kept_outcomes(base, no_progress)]


def decision_word(decision: Outcome.Decision.ValueType) -> str:
    """The word for a decision."""
    return Outcome.Decision.Name(decision).lower().replace("_", " ")


def outcome_line(kept: KeptOutcome, now_ms: float) -> Json:
    """One outcome as `--json` prints it."""
    return {
        "xid": xid_line(kept.xid),
        "text": text(kept.xid),
        "decision": decision_word(kept.decision),
        "age_seconds": round(max(0.0, now_ms - kept.timestamp) / 1000, 3),
        "record": kept.record_id,
    }


def forgettable(lines: Sequence[Json], named: str, journal: str) -> Json:
    """The outcome that is named by its xid or its record's number, as its line shows them. Raises XidError for an
    outcome that nobody may forget by hand."""
    found = [line for line in lines if named in (line["text"], str(line["record"]))]
    if not found:
        raise XidError(
            f"no outcome {named} is kept: {command('tx list', journal=journal)} shows those that are",
            code=XaCode.NOTA,
        )
    if len(found) > 1:
        raise XidError(f"several xids are called {named}: name one by its record's number", code=XaCode.INVAL)
    (line,) = found
    xid = line["text"]
    if line["decision"] == decision_word(COMMITTED):
        raise XidError(
            f"xid {xid} has still to commit, as its transaction is committed: without this outcome a recovery rolls it "
            "back. Run its coordinator's recovery",
            code=XaCode.PROTO,
        )
    of = line["xid"]
    stores = of["format_id"] == FORMAT_ID and of["bqual"] == encode_data(STORE)
    if stores and line["decision"] == decision_word(HEURISTIC_COMMIT):
        raise XidError(
            f"the other branches of xid {xid} have still to commit: without this outcome a recovery rolls them back. "
            "Run its coordinator's recovery, which forgets it",
            code=XaCode.PROTO,
        )
    return line


def forget(resource: XaResource, named: str, journal: str) -> None:
    """Forget an outcome. This is durable when it returns. Raises the errors of `forgettable`."""
    kept = {outcome.record_id: outcome for outcome in resource.outcomes()}
    line = forgettable([outcome_line(outcome, 0.0) for outcome in kept.values()], named, journal)
    resource.forget(kept[line["record"]].xid)
