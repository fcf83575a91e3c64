"""Two transactional ids whose groups take turns: which order of initialising them keeps a zombie's groups out.

A model of its own, and a small one: transactions succeed or are refused at once; what may happen is that any node
stands still for as long as it likes, and that the coordinator times a transaction out and so fences its producer.
Id 0 is the guard. The rule that holds is `Rule()`: a successor takes the guard first and writes its marker through it,
and whoever recovers initialises the guard last, then checks. Each part of it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

GUARD, OTHER = 0, 1


@dataclass(frozen=True)
class Rule:
    """The order in which the two ids are initialised, and the one that writes the marker."""

    activation: tuple[int, int] = (GUARD, OTHER)
    recovery: tuple[int, int] = (OTHER, GUARD)
    marker_through: int = GUARD


class At(StrEnum):
    """A node's next step."""

    IDLE = "idle"
    SECOND_INIT = "second init"
    READ = "read"
    MARKER = "marker"
    READY = "ready"
    ACTIVE = "active"
    CHECK = "check"
    REINIT = "reinit"
    SECOND_REINIT = "second reinit"
    RECHECK = "recheck"
    FENCED = "fenced"


class Node(NamedTuple):
    """Each node activates once, and writes its groups alternately through the two ids."""

    at: At = At.IDLE
    epoch: int = 0
    written: int = 0


class World(NamedTuple):
    """The newest producer of each id, the epochs of the WAL's frames, the counter's owner, and what may go wrong."""

    newest: tuple[int | None, int | None]
    wal: tuple[int, ...]
    counter: tuple[int, int]  # the newest epoch, and the node that took it
    nodes: tuple[Node, ...]
    timeouts: int

    def node(self, n: int, **changes: object) -> World:
        """The same with node n changed."""
        changed = self.nodes[n]._replace(**changes)  # type: ignore[arg-type]
        return self._replace(nodes=(*self.nodes[:n], changed, *self.nodes[n + 1 :]))

    def initialised(self, which: int, newest: int | None) -> World:
        """The same after an InitProducerId of that id."""
        other = self.newest[1 - which]
        return self._replace(newest=(newest, other) if which == GUARD else (other, newest))


def node_step(rule: Rule, world: World, n: int, groups: int) -> tuple[str, World] | None:
    """What the node does next; None when it has nothing left to do."""
    node, (epoch, owner) = world.nodes[n], world.counter
    own = (epoch, owner) == (node.epoch, n)
    match node.at:
        case At.IDLE | At.REINIT:
            first, then = (rule.activation, At.SECOND_INIT) if node.at is At.IDLE else (rule.recovery, At.SECOND_REINIT)
            return f"init id {first[0]}", world.initialised(first[0], n).node(n, at=then)
        case At.SECOND_INIT:
            return f"init id {rule.activation[1]}", world.initialised(rule.activation[1], n).node(n, at=At.READ)
        case At.SECOND_REINIT:
            return f"init id {rule.recovery[1]}", world.initialised(rule.recovery[1], n).node(n, at=At.RECHECK)
        case At.READ:
            return f"takes epoch {epoch + 1}", world.node(n, at=At.MARKER, epoch=epoch + 1)
        case At.MARKER | At.READY:
            what = f"writes {node.at} {node.epoch} through id {rule.marker_through}"
            if world.newest[rule.marker_through] != n:
                return f"{what}: fenced", world.node(n, at=At.FENCED)
            written = world._replace(wal=(*world.wal, node.epoch))
            if node.at is At.MARKER:
                return what, written._replace(counter=(node.epoch, n)).node(n, at=At.READY)
            return what, written.node(n, at=At.ACTIVE)
        case At.ACTIVE if node.written < groups:
            which = (node.written + 1) % 2
            what = f"writes a group of epoch {node.epoch} through id {which}"
            if world.newest[which] != n:
                return f"{what}: fenced", world.node(n, at=At.CHECK)
            written = world._replace(wal=(*world.wal, node.epoch))
            return what, written.node(n, written=node.written + 1)
        case At.CHECK:
            return f"checks: {own=}", world.node(n, at=At.REINIT if own else At.FENCED)
        case At.RECHECK:
            return f"checks after both inits: {own=}", world.node(n, at=At.ACTIVE if own else At.FENCED)
    return None


def steps(rule: Rule, world: World, groups: int) -> Iterator[tuple[str, World]]:
    """Every step that anybody may take next."""
    for which in (GUARD, OTHER) if world.timeouts else ():
        after = world._replace(timeouts=world.timeouts - 1).initialised(which, None)
        yield f"the coordinator times a transaction of id {which} out", after
    for n in range(len(world.nodes)):
        step = node_step(rule, world, n, groups)
        if step:
            yield f"node {n} {step[0]}", step[1]


def shortest_violation(rule: Rule, *, nodes: int = 2, groups: int = 2, timeouts: int = 1) -> tuple[str, ...] | None:
    """The steps to a frame of an older epoch behind a newer marker; None if there are none."""
    start = World((0, 0), (1,), (1, 0), (Node(At.ACTIVE, 1), *(Node(),) * (nodes - 1)), timeouts)
    traces: dict[World, tuple[str, ...]] = {start: ()}
    frontier = [start]
    while frontier:
        following = []
        for world in frontier:
            for label, after in steps(rule, world, groups):
                if after in traces:
                    continue
                traces[after] = (*traces[world], label)
                if list(after.wal) != sorted(after.wal):
                    return traces[after]
                following.append(after)
        frontier = following
    return None
