"""What must hold in every state, and of every step. The words in front are the design's invariants."""

from __future__ import annotations

from functools import lru_cache

from .coordinator import committed
from .state import Kind, Log, Outcome, World


def broken_state(world: World) -> str | None:
    """What the state breaks, if anything."""
    wal = committed(world.broker)
    return broken_wal(wal) or broken_outcome(wal, world.outcomes) or broken_load(wal, world)


@lru_cache(maxsize=100_000)
def broken_wal(wal: tuple[Log, ...]) -> str | None:
    """What the committed WAL breaks by itself: one epoch once, fenced, the chain, exactly once, atomic."""
    for shard, log in enumerate(wal):
        epoch, number, groups = 0, 0, set[int]()
        for frame in log:
            if frame.kind is Kind.MARKER and frame.epoch <= epoch:
                return f"one epoch once: shard {shard} has marker {frame.epoch} behind marker {epoch}"
            if frame.epoch < epoch:
                return f"fenced: shard {shard} has a frame of epoch {frame.epoch} behind marker {epoch}"
            if frame.group in groups:
                return f"exactly once: shard {shard} has group {frame.group} twice"
            if frame.previous != number:
                return f"chain: shard {shard} stops at a frame that follows {frame.previous}, not {number}"
            epoch, number = frame.epoch, number + 1
            if frame.group is not None:
                groups.add(frame.group)
    for what in (_groups, _markers):
        if len({what(log) for log in wal}) > 1:
            return f"atomic: {[sorted(what(log)) for log in wal]} are the {what.__name__[1:]} of the shards"
    return None


@lru_cache(maxsize=100_000)
def broken_outcome(wal: tuple[Log, ...], outcomes: tuple[Outcome, ...]) -> str | None:
    """What the outcomes that nodes told break: durable (done is committed in every shard), never failed but committed.

    That what is done lies before the next epoch's marker follows from "fenced" above.
    """
    for group, outcome in enumerate(outcomes):
        shards = [group in _groups(log) for log in wal]
        if outcome is Outcome.DONE and not all(shards):
            return f"durable: group {group} was acknowledged and is not committed"
        if outcome is Outcome.FAILED and any(shards):
            return f"outcome: group {group} was called failed and is committed"
    return None


def broken_load(wal: tuple[Log, ...], world: World) -> str | None:
    """Gated: whoever has passed the gate sees all groups before its own marker, and no later one."""
    for n, node in enumerate(world.nodes):
        if node.loaded is None:
            continue
        for shard, log in enumerate(wal):
            expected = _groups_before(log, node.epoch)
            if node.loaded[shard] != expected:
                loaded = sorted(node.loaded[shard])
                return f"gated: node {n} loads {loaded} of shard {shard}, before its marker are {sorted(expected)}"
    return None


def broken_step(before: World, after: World) -> str | None:
    """Superseded: nobody becomes active behind a newer epoch, or without what was acknowledged by then."""
    if before.nodes is after.nodes:
        return None
    for n, node in enumerate(after.nodes):
        if not node.is_active or before.nodes[n].is_active or node.loaded is None:
            continue
        for other, active in enumerate(after.nodes):
            if other != n and active.is_active and active.epoch >= node.epoch:
                return f"superseded: node {n} becomes active in epoch {node.epoch}, node {other} is in {active.epoch}"
        done = {group for group, outcome in enumerate(after.outcomes) if outcome is Outcome.DONE}
        if any(done - groups for groups in node.loaded):
            return f"superseded: node {n} becomes active without groups {sorted(done)} acknowledged before"
    return None


@lru_cache(maxsize=100_000)
def _groups(log: Log) -> frozenset[int]:
    return frozenset(frame.group for frame in log if frame.group is not None)


@lru_cache(maxsize=100_000)
def _markers(log: Log) -> frozenset[int]:
    return frozenset(frame.epoch for frame in log if frame.kind is Kind.MARKER)


@lru_cache(maxsize=100_000)
def _groups_before(log: Log, epoch: int) -> frozenset[int]:
    return frozenset(frame.group for frame in log if frame.group is not None and frame.epoch < epoch)
