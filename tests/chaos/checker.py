"""Judges a run: what nodes wrote down, against the WAL and the tables. Decides by WAL position alone; no clock.

The WAL says what took effect, where, and in which epoch. Every kind of fault in `Kind` is looked for; an empty list of
faults means that every acknowledged operation is there, that the others are there whole or not at all, that all of it
took effect once and in order, and that every load and the tables show exactly what the WAL makes of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tests.chaos.expected import Step, Transactions, effect_of
from tests.chaos.fold import Effect, ShardState, Told, WalFold, shard_of, stale_key
from tests.chaos.history import Activation
from tests.chaos.tables import table_state

FAULTS_MAX = 20
"""So many of a kind are told; what breaks once often breaks a thousand times."""


class Kind(Enum):
    """What can be wrong."""

    LOST = "acknowledged, and not in the WAL"
    PARTIAL = "a transaction or group of which only a part is there"
    ORDER = "not in the order of submission"
    DUPLICATE = "took effect twice"
    FOREIGN = "nobody submitted it"
    DENIED = "said to have failed, and in the WAL"
    BEHIND_MARKER = "acknowledged, and behind the marker of a newer epoch"
    RESURRECTED = "deleted, and there again"
    IN_DOUBT = "a prepared transaction that is lost, changed, or settled by nobody"
    LOAD = "a load that shows something else than the WAL up to its epoch's marker"
    TABLE = "tables that show something else than the WAL up to their mark"
    WAL = "frames or operations that must not be in the WAL"


@dataclass(frozen=True)
class Fault:
    kind: Kind
    what: str

    def __str__(self) -> str:
        return f"{self.kind.name}: {self.what} ({self.kind.value})"


@dataclass
class Evidence:
    """A journal's committed records: WAL as (offset, value), tables as (key, value), shard by shard."""

    journal: bytes
    wal: list[list[tuple[int, bytes | None]]]
    table: list[list[tuple[bytes, bytes | None]]]

    @property
    def shards(self) -> int:
        return len(self.wal)


@dataclass
class Verdict:
    """`faults` tells at most some of each kind; `counts` has how many there are."""

    faults: list[Fault] = field(default_factory=list)
    counts: Counter[Kind] = field(default_factory=Counter)
    submitted: int = 0
    acknowledged: int = 0
    effective: int = 0
    activations: int = 0

    def add(self, kind: Kind, what: str) -> None:
        self.counts[kind] += 1
        if self.counts[kind] <= FAULTS_MAX:
            self.faults.append(Fault(kind, what))


def check(evidence: Evidence, activations: Mapping[int, Activation]) -> Verdict:
    """All there is to find. The last activation's load is the final one."""
    verdict = Verdict()
    folds = [_fold_shard(shard, evidence, activations, verdict) for shard in range(evidence.shards)]
    for activation in activations.values():
        if activation.loaded:
            _check_told(activation, verdict)
    transactions = Transactions(evidence.shards)
    for epoch in sorted(activations.keys() | {epoch for fold in folds for epoch in fold.effects}):
        activation = activations.get(epoch, Activation(epoch))
        transactions.end_epoch(_check_epoch(activation, transactions.steps(activation.submitted), folds, verdict))
        _check_staged(activation, folds, verdict)
        verdict.submitted += len(activation.submitted)
        verdict.acknowledged += len(activation.done)
        verdict.activations += activation.loaded
    return verdict


# ---- loads and tables, shard by shard --------------------------------------------------------------------------------


def _fold_shard(shard: int, evidence: Evidence, activations: Mapping[int, Activation], verdict: Verdict) -> WalFold:
    unchecked = {epoch for epoch, activation in activations.items() if activation.loaded}

    def check_load(epoch: int, state: ShardState) -> None:
        if epoch in unchecked:
            unchecked.discard(epoch)
            loaded = load_state(activations[epoch].load, shard, evidence.shards)
            _compare(state, loaded, fold.deleted, Kind.LOAD, f"the load of epoch {epoch}, shard {shard}", verdict)

    fold = WalFold(evidence.journal, check_load)
    table, mark = table_state(evidence.table[shard])
    stands = False
    for offset, value in evidence.wal[shard]:
        fold.take(offset, value)
        if offset == mark.offset:
            stands = True
            where = f"the tables at offset {offset}, shard {shard}"
            _compare(fold.state, table, fold.deleted, Kind.TABLE, where, verdict)
            if mark.rejected or mark.epoch != fold.epoch or mark.records != len(fold.state.records):
                verdict.add(Kind.TABLE, f"shard {shard}: the mark says {str(mark).splitlines()}")
    if not stands and evidence.wal[shard]:
        verdict.add(Kind.TABLE, f"shard {shard}: the mark stands at {mark.offset}, where nothing is")
    for fault in fold.faults:
        verdict.add(Kind.WAL, f"shard {shard}: {fault}")
    for epoch in sorted(unchecked):
        verdict.add(Kind.WAL, f"shard {shard}: epoch {epoch} was activated, and has no marker")
    verdict.effective += sum(len(effects) for effects in fold.effects.values())
    return fold


def _check_told(activation: Activation, verdict: Verdict) -> None:
    """Everything was told once, and the loader was told how much that was."""
    where = f"the load of epoch {activation.epoch}"
    records = [line for line in activation.load if line["type"] == "record"]
    prepared = [line for line in activation.load if line["type"] == "prepared"]
    told = Counter([("record", line["id"]) for line in records] + [("transaction", line["tx"]) for line in prepared])
    for (what, number), times in told.items():
        if times > 1:
            verdict.add(Kind.LOAD, f"{where}: {what} {number} was told {times} times")
    counted = {
        "type": "complete",
        "records": len(records),
        "updates": sum(len(line["updates"]) for line in records),
        "prepared": len(prepared),
        "operations": sum(len(line["operations"]) for line in prepared),
    }
    completed = [line for line in activation.load if line["type"] == "complete"]
    if completed != [counted]:
        verdict.add(Kind.LOAD, f"{where} was completed with {completed}, not {counted}")


def load_state(load: Iterable[Mapping[str, Any]], shard: int, shards: int) -> Told:
    """The shard's part of what a loader was told."""
    records: dict[int, dict[str, Any]] = {}
    parts: dict[int, Any] = {}
    for line in load:
        if line["type"] == "record":
            if shard_of(line["id"], shards) == shard:
                records[line["id"]] = {key: line[key] for key in ("kind", "data", "at", "updates")}
            continue
        if line["type"] == "complete":
            continue
        own = [Effect(**one) for one in line["operations"] if shard_of(one["id"], shards) == shard]
        is_home = shard_of(line["tx"], shards) == shard
        if own or is_home:
            parts[line["tx"]] = (True, line["data"] if is_home else "", own)
    return records, parts


def _compare(state: ShardState, shown: Told, deleted: set[int], kind: Kind, where: str, verdict: Verdict) -> None:
    """What is shown against what the WAL says."""
    records, parts = state.told()
    shown_records, shown_parts = shown
    for record_id in sorted(records.keys() | shown_records.keys()):
        expected, found = records.get(record_id), shown_records.get(record_id)
        if expected == found:
            continue
        back = expected is None and record_id in deleted
        verdict.add(Kind.RESURRECTED if back else kind, f"{where}: record {record_id} is {found}, not {expected}")
    for tx in sorted(parts.keys() | shown_parts.keys()):
        expected_part, found_part = parts.get(tx), shown_parts.get(tx)
        if expected_part != found_part:
            in_doubt = any(part is not None and part[0] for part in (expected_part, found_part))
            what = f"{where}: transaction {tx} is {found_part}, not {expected_part}"
            verdict.add(Kind.IN_DOUBT if in_doubt else kind, what)


# ---- what was submitted, epoch by epoch ------------------------------------------------------------------------------


def _check_epoch(activation: Activation, steps: Sequence[Step], folds: Sequence[WalFold], verdict: Verdict) -> set[int]:
    """What should have taken effect in this epoch, against what did, in every shard and over all of them.

    Gives the operations of which something took effect.
    """
    epoch = activation.epoch
    present: set[int] = set()
    for shard, fold in enumerate(folds):
        own = [place for place, step in enumerate(steps) if step.shard == shard]
        present |= _match(f"epoch {epoch}, shard {shard}", own, steps, fold.effects[epoch], verdict)
    last = max(present, default=-1)
    there = {steps[place].n for place in present}
    for place, step in enumerate(steps):
        what = f"epoch {epoch}, shard {step.shard}, operation {step.n}: {step.effect}"
        in_doubt = step.effect.op == "prepare"
        if place in present:
            if step.n in activation.not_written:
                verdict.add(Kind.DENIED, what)
        elif step.n in activation.done and stale_key(step.effect) in folds[step.shard].stale[epoch]:
            verdict.add(Kind.BEHIND_MARKER, what)
        elif step.n in there:
            verdict.add(Kind.IN_DOUBT if in_doubt else Kind.PARTIAL, what)
        elif step.n in activation.done:
            verdict.add(Kind.IN_DOUBT if in_doubt else Kind.LOST, what)
        elif place < last:
            verdict.add(Kind.PARTIAL, f"{what}; what was submitted behind it is there")
    return there


def _match(
    where: str, own: Sequence[int], steps: Sequence[Step], effects: Sequence[Effect], verdict: Verdict
) -> set[int]:
    """Numbers of the shard's own steps that took effect; `verdict` gets what did so twice, out of order, or unasked.

    A frame has its operations by kind, so the operations of each kind and those of each record must be in order.
    """
    waiting: dict[Effect, list[int]] = {}
    for place in reversed(own):
        waiting.setdefault(steps[place].effect, []).append(place)
    present: set[int] = set()
    last: dict[str | tuple[bool, int], int] = {}
    for effect in effects:
        places = waiting.get(effect)
        settles = effect.op in ("prepare", "commit", "rollback")
        if not places:
            kind = Kind.DUPLICATE if places is not None else Kind.IN_DOUBT if settles else Kind.FOREIGN
            verdict.add(kind, f"{where}: {effect}")
            continue
        place = places.pop()
        present.add(place)
        for among in (effect.op, (settles, effect.id)):
            if place < last.get(among, -1):
                verdict.add(Kind.ORDER, f"{where}, operation {steps[place].n}: {effect}")
            last[among] = max(last.get(among, -1), place)
    return present


def _check_staged(activation: Activation, folds: Sequence[WalFold], verdict: Verdict) -> None:
    """Acknowledged operations of transactions are in the WAL, whatever became of their transactions."""
    for one in activation.submitted:
        if not one.tx or one.n not in activation.done or one.op not in ("add", "update", "delete"):
            continue
        shard = shard_of(one.id, len(folds))
        effect = effect_of(one)
        if (one.tx, effect) in folds[shard].staged or effect in folds[shard].seen:
            continue
        behind = stale_key(effect) in folds[shard].stale[activation.epoch]
        what = f"epoch {activation.epoch}, shard {shard}, operation {one.n} of transaction {one.tx}: {effect}"
        verdict.add(Kind.BEHIND_MARKER if behind else Kind.LOST, what)
