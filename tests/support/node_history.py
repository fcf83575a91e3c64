"""What nodes under test said they did, and whether what was loaded afterwards agrees with it. Pure.

A node writes a line before each operation it submits, and one when it learns what became of it. One writer commits
group after group, so of what a node submitted exactly the first k operations took effect, for some k: at least all that
were acknowledged, none that was called failed, and a transaction as a whole where its commit or prepare stands. The
state that any later activation loads must be that of such a k, or something was lost, torn, reordered or resurrected.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from journal.verify.state import shard_of
from tests.simulation.reference import Call, Reference
from tests.support.script_model import Line, ScriptModel, call_of

KNOWN_NOT_WRITTEN = frozenset({"FencedError", "ClosedError"})
"""Errors of a completion that promise that the operation is not in the journal."""

TEXT_MAX = 300


@dataclass
class Activation:
    """One activation of one node: what it loaded, what it then submitted in order, and what it was told of it."""

    epoch: int
    load: list[Line]
    submitted: list[Line] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    critical: list[str] = field(default_factory=list)


def parse_history(text: str) -> list[Activation]:
    """The activations of a node's history file. A last line that a kill cut off is passed over."""
    activations: list[Activation] = []
    for line in text.splitlines(keepends=True):
        if line.endswith("\n"):
            _take(json.loads(line), activations)
    return activations


def _take(entry: dict[str, Any], activations: list[Activation]) -> None:
    match entry:
        case {"loaded": load, "epoch": epoch}:
            activations.append(Activation(epoch, load))
        case {"n": _, "op": _}:
            activations[-1].submitted.append(entry)
        case {"refused": n}:
            submitted = activations[-1].submitted
            assert submitted.pop()["n"] == n
        case {"done": n}:
            activations[-1].done.add(n)
        case {"failed": n, "error": error}:
            if error in KNOWN_NOT_WRITTEN:
                activations[-1].failed.add(n)
        case {"critical": error}:
            activations[-1].critical.append(error)
        case _:
            assert entry.keys() <= {"active", "refusal", "state", "ended"}, entry


@dataclass
class Verdict:
    """`faults` is empty if all is well; then `effective` has what took effect, in order, activation by activation."""

    faults: list[str] = field(default_factory=list)
    effective: list[list[Line]] = field(default_factory=list)
    acknowledged: int = 0


def check_history(activations: Iterable[Activation], shards: int) -> Verdict:
    """Every load against all that was submitted before it. What the last activation submitted is not judged."""
    model = ScriptModel(shards)
    verdict = Verdict()
    before = Activation(0, [])
    for activation in sorted(activations, key=lambda activation: activation.epoch):
        if activation.epoch <= before.epoch:
            return Verdict([f"epoch {activation.epoch} was activated twice"])
        kept = _prefix(model, before, activation.load)
        if kept is None:
            return Verdict(_explain(model, before, activation))
        model.apply(kept)
        verdict.effective.append(kept)
        verdict.acknowledged += len(before.done)
        before = activation
    return verdict


def _bounds(activation: Activation) -> tuple[int, int]:
    """At least so many, and at most so many, of what was submitted took effect."""
    at_least, at_most = 0, len(activation.submitted)
    settled_at: dict[int, int] = {}
    begun = {line["tx"] for line in activation.submitted if "tx" in line and line["op"] in ("add", "update", "delete")}
    begun -= {line["tx"] for line in activation.submitted if line["op"] == "prepare"}
    for place, line in reversed(list(enumerate(activation.submitted))):
        if line["op"] == "rollback" and line["tx"] in begun:
            continue  # done at once: whether it is written or not, none of its operations ever takes effect
        in_transaction = "tx" in line and line["op"] in ("add", "update", "delete")
        if "tx" in line and not in_transaction:
            settled_at[line["tx"]] = place
        effective_at = settled_at.get(line["tx"], place) if in_transaction else place
        if line["n"] in activation.done:
            at_least = max(at_least, effective_at + 1)
        if line["n"] in activation.failed and not in_transaction:
            at_most = min(at_most, place)
    return at_least, at_most


def _prefix(before: ScriptModel, activation: Activation, load: Sequence[Line]) -> list[Line] | None:
    """The shortest allowed beginning of what was submitted that leads to `load`."""
    at_least, at_most = _bounds(activation)
    model = before.copy()
    for place in range(at_most + 1):
        if place:
            model.take(activation.submitted[place - 1])
        if place >= at_least and model.dump() == load:
            return activation.submitted[:place]
    return None


# ---- saying what is wrong ------------------------------------------------------------------------------------


def _explain(before: ScriptModel, activation: Activation, after: Activation) -> list[str]:
    """What differs between a load and the most similar state that it might have shown."""
    at_least, at_most = _bounds(activation)
    what = f"the load of epoch {after.epoch}"
    anywhere = _prefix(before, Activation(0, [], activation.submitted), after.load)
    if anywhere is not None and len(anywhere) > at_most:
        return [f"{what} has operation {activation.submitted[at_most]['n']}, which was said to have failed"]
    if anywhere is not None:
        return [f"{what} ends before operation {activation.submitted[at_least - 1]['n']}, which was acknowledged"]
    found = _by_key(after.load)
    submitted = activation.submitted
    model = before.copy()
    nearest: list[tuple[str, int]] | None = None
    for place in range(at_most + 1):
        if place:
            model.take(submitted[place - 1])
        expected = _by_key(model.dump())
        other = sorted(key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key))
        if place >= at_least and (nearest is None or len(other) < len(nearest)):
            nearest = other
            deleted = {line["id"] for line in submitted[:place] if line["op"] == "delete"}
            faults = [_difference(what, key, expected.get(key), found.get(key), deleted) for key in other]
    return faults if nearest else [f"{what} has an entry twice"]


def _difference(
    what: str, key: tuple[str, int], expected: Line | None, found: Line | None, deleted: Collection[int]
) -> str:
    note = " (deleted before)" if found and key[0] == "record" and key[1] in deleted else ""
    return f"{what}: {key[0]} {key[1]}{note}: {_short(expected)} became {_short(found)}"


def _short(line: Line | None) -> str:
    return "nothing" if line is None else json.dumps(line)[:TEXT_MAX]


def _by_key(load: Iterable[Line]) -> dict[tuple[str, int], Line]:
    return {(line["type"], line["id"] if "id" in line else line["tx"]): line for line in load}


# ---- what happened, shard by shard ---------------------------------------------------------------------------


def happenings(effective: Iterable[Iterable[Line]], shards: int) -> list[list[Call]]:
    """The operations that took effect, in order, shard by shard. No transaction here deletes what it added."""
    reference = Reference()
    happened: list[list[Call]] = [[] for _ in range(shards)]
    for lines in effective:
        for call in map(call_of, lines):
            effects = [] if call.tx else [call]
            if call.verb == "commit":
                effects = reference.transactions[call.tx].calls
            for one in effects:
                happened[shard_of(one.id, shards)].append(one)
            reference.apply(call)
        reference.new_epoch()
    return happened
