"""What the nodes of a run wrote down: every operation they submitted and everything they were told of it.

A node appends JSON lines to a file, each in one write, so that a line outlives a SIGKILL:

    {"role":"active","epoch":3,"t":1700000000.1}       what the node is now
    {"loaded":[...],"epoch":3}                         the state that an activation was given; it comes first
    {"fenced":"epoch 4 has begun","t":1700000000.3}    it was told that it is active no more, and did not choose to
    {"n":50331649,"op":"add","id":9,"kind":4,"data":"103-1b2c3d4e"}       submitted: written before the call
    {"refused":50331649}                               the call raised: nothing was submitted
    {"done":50331649,"t":1700000000.2}                 acknowledged
    {"failed":50331649,"error":"FencedError"}          what its completion said instead

Operations are numbered from EPOCH << 24 on, so that a number says its epoch. Data is written down as its digest.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

EPOCH_BITS = 24

NOT_WRITTEN = frozenset({"FencedError", "ClosedError"})
"""Errors of a completion that promise that the operation is not in the journal."""


def digest(data: bytes) -> str:
    """Stands for data in histories: its size and checksum. Data of a workload begins with its operation's number."""
    return f"{len(data)}-{zlib.crc32(data):08x}"


class Submitted(NamedTuple):
    """An operation as a node submitted it; `data` is a digest, `tx` 0 outside of a transaction."""

    n: int
    op: str
    id: int = 0
    kind: int = 0
    data: str = ""
    replaceable: bool = False
    subject: int = 0
    tx: int = 0


class RoleChange(NamedTuple):
    """When a node became what."""

    t: float
    node: str
    role: str
    epoch: int


@dataclass
class Activation:
    """An epoch, as the node that was active in it saw it."""

    epoch: int
    load: list[dict[str, Any]] = field(default_factory=list)
    loaded: bool = False
    """Whether `load` is what a loader was told: also if that was nothing."""
    submitted: list[Submitted] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    not_written: set[int] = field(default_factory=set)


@dataclass
class History:
    """All that the nodes of a run wrote down."""

    activations: dict[int, Activation] = field(default_factory=dict)
    roles: list[RoleChange] = field(default_factory=list)
    acknowledged_at: list[float] = field(default_factory=list)
    """The time of every acknowledgement, in no order."""

    def activation(self, epoch: int) -> Activation:
        return self.activations.setdefault(epoch, Activation(epoch))


def read_history(files: Iterable[Path]) -> History:
    """The histories of several nodes, told apart by the name of the file's folder."""
    history = History()
    for file in files:
        with file.open(encoding="utf-8") as lines:
            take_lines(history, lines, file.parent.name)
    history.roles.sort()
    return history


def take_lines(history: History, lines: Iterable[str], node: str) -> None:
    """One node's lines. A last one that a kill cut off is passed over."""
    for entry in _entries(lines):
        if "op" in entry:
            operation = Submitted(**entry)
            activation = history.activation(operation.n >> EPOCH_BITS)
            assert activation.loaded, f"{node}: {operation} was submitted before its epoch had a load"
            activation.submitted.append(operation)
        elif "done" in entry:
            history.activation(entry["done"] >> EPOCH_BITS).done.add(entry["done"])
            history.acknowledged_at.append(entry["t"])
        elif "failed" in entry:
            if entry["error"] in NOT_WRITTEN:
                history.activation(entry["failed"] >> EPOCH_BITS).not_written.add(entry["failed"])
        elif "refused" in entry:
            refused = history.activation(entry["refused"] >> EPOCH_BITS).submitted.pop()
            assert refused.n == entry["refused"], f"{node}: {refused} was not the last one submitted"
        elif "loaded" in entry:
            activation = history.activation(entry["epoch"])
            assert not activation.loaded, f"epoch {entry['epoch']} was activated twice"
            activation.load, activation.loaded = entry["loaded"], True
        elif "role" in entry:
            history.roles.append(RoleChange(entry["t"], node, entry["role"], entry.get("epoch", 0)))


def _entries(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.endswith("\n"):
            yield json.loads(line)
