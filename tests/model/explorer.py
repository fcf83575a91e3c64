"""The search: every state that any order of steps can reach, breadth first, so that a trace is a shortest one.

States are remembered by their 64-bit hash with the hash of the state they were first reached from: ten million fit
into memory, and a trace is found again by walking from the start. Two states of one hash would be taken for one; with
ten million of them the odds of a single such pair are about one in a few hundred thousand.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .activation import (
    become_leader,
    end_counter,
    end_ready,
    first_init,
    pass_gate,
    produce_counter_and_markers,
    produce_ready,
    read_control_and_tails,
    take_late_ready,
)
from .coordinator import broker_steps, foreign_steps, initialised, is_open, marker_steps
from .properties import broken_state, broken_step
from .state import NO_FAULTS, At, Config, Steps, World
from .writing import (
    check_after_init,
    check_before_init,
    crash,
    end_group,
    init_again,
    lapse,
    produce_group,
    read_back,
    settle_fenced,
    take_group,
    wait_for_repair,
)

NODE_STEPS: dict[At, Callable[[Config, World, int], Steps]] = {
    At.IDLE: become_leader,
    At.INIT: first_init,
    At.READ: read_control_and_tails,
    At.COUNTER: produce_counter_and_markers,
    At.COUNTER_END: end_counter,
    At.GATE: pass_gate,
    At.READY: produce_ready,
    At.READY_END: end_ready,
    At.READY_LATE: take_late_ready,
    At.ACTIVE: take_group,
    At.GROUP: produce_group,
    At.GROUP_END: end_group,
    At.CHECK: check_before_init,
    At.REINIT: init_again,
    At.RECHECK: check_after_init,
    At.READ_BACK: read_back,
    At.FENCED: settle_fenced,
    At.NOTICED: wait_for_repair,
}


@dataclass(frozen=True)
class Result:
    """What a search found."""

    states: int
    depth: int
    seconds: float
    complete: bool  # every reachable state was seen, or a violation found
    broken: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        found = f"{self.states} states, {self.depth} steps deep, {self.seconds:.1f} s"
        if self.broken is None:
            return f"{'holds' if self.complete else 'stopped, nothing found so far'}: {found}"
        steps = "".join(f"\n  {place:2} {label}" for place, label in enumerate(self.trace, 1))
        return f"broken in {len(self.trace)} steps ({found}){steps}\n  => {self.broken}"


def steps(config: Config, world: World) -> Steps:
    """Every step that anybody may take next."""
    yield from broker_steps(config, world)
    for n, node in enumerate(world.nodes):
        yield from NODE_STEPS[node.at](config, world, n)
        yield from crash(config, world, n)
        yield from lapse(config, world, n)


def explore(
    config: Config,
    *,
    states_max: int = 50_000_000,
    progress: Callable[[int, int], None] | None = None,
    also: Callable[[World], str | None] | None = None,
) -> Result:
    """Looks at every state, up to the first violation. `also` is one more property of a state."""
    began = time.monotonic()
    start = config.start()
    reached_from = {hash(start): 0}
    frontier, depth, broken = [start], 0, None
    while frontier and len(reached_from) < states_max:
        following = []
        for world in frontier:
            key = hash(world)
            for label, after in steps(config, world):
                after_key = hash(after)
                broken = broken_step(world, after)
                if after_key in reached_from and broken is None:
                    continue
                broken = broken or broken_state(after) or (also(after) if also else None)
                if broken:
                    trace = (*_trace(config, reached_from, key), label)
                    return Result(len(reached_from), depth, time.monotonic() - began, True, broken, trace)
                reached_from[after_key] = key
                following.append(after)
        frontier, depth = following, depth + 1
        if progress:
            progress(len(reached_from), depth)
    return Result(len(reached_from), depth, time.monotonic() - began, not frontier)


def _trace(config: Config, reached_from: dict[int, int], key: int) -> Iterator[str]:
    """The labels of the way to the state of that hash."""
    way = [key]
    start = config.start()
    while way[-1] != hash(start):
        way.append(reached_from[way[-1]])
    world = start
    for wanted in reversed(way[:-1]):
        label, world = next(step for step in steps(config, world) if hash(step[1]) == wanted)
        yield label


class Liveness:
    """Every node, left alone with Kafka and free of further faults, becomes active and the newest: from any state."""

    def __init__(self, config: Config, steps_max: int = 200) -> None:
        self.config = replace(config, activations=1_000)
        self.steps_max = steps_max
        self.good: set[tuple[int, int]] = set()

    def __call__(self, world: World) -> str | None:
        calm = world._replace(faults=NO_FAULTS)
        return next((fault for n in range(len(world.nodes)) if (fault := self._alone(calm, n))), None)

    def _alone(self, world: World, n: int) -> str | None:
        way = []
        while (n, hash(world)) not in self.good and not self._is_there(world, n):
            way.append((n, hash(world)))
            following = self._next(world, n)
            if following is None or len(way) > self.steps_max:
                return f"alive: node {n} alone stays {world.nodes[n].at}"
            world = following
        self.good.update(way)
        return None

    @staticmethod
    def _is_there(world: World, n: int) -> bool:
        return world.nodes[n].at is At.ACTIVE and world.broker.newest == n

    def _next(self, world: World, n: int) -> World | None:
        """Kafka's own work comes first; the node has no choice but at the gate, where the first mark will do.

        What an absent node left open holds a check up, until the coordinator times it out.
        """
        for _, after in foreign_steps(world):
            return after
        for _, after in marker_steps(world):
            return after
        for _, after in NODE_STEPS[world.nodes[n].at](self.config, world, n):
            return after
        return world.kafka(initialised(world.broker, None)) if is_open(world.broker) else None
