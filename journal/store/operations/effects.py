"""The effects of accepted operations on the queues, once their groups are durable.

A message that an operation adds becomes visible when the operation's group is committed. Until then the group's effects
wait here, in the order of acceptance. The next call of the store applies the effects of all groups that are done. So no
thread has to be woken, and the journal's writer never waits for the store's lock, whose holder may wait for the writer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from journal.append.completion import Completion
from journal.store.queues.watch import QueueWatch

Effect = tuple[Callable[[Any, Any], object], Any, Any]
"""A function, and the two arguments with which it is called once a group is durable."""

References = list[tuple[int, int]]
"""References as (message, queue)."""


class _Run(NamedTuple):
    """References that one group brings to their queues, and references that it settles."""

    arrived: References
    settled: References


class GroupEffects:
    """Effects that wait for their groups to be durable. The store's lock guards them."""

    __slots__ = ("_arrive_and_settle", "_effects", "_open_group", "_run", "_watch", "groups")

    def __init__(self, arrive_and_settle: Callable[[References, References], None], watch: QueueWatch) -> None:
        """`arrive_and_settle` brings references that have become durable to their queues, and settles others; `watch`
        is told of groups that are durable."""
        self._watch = watch
        self.groups: deque[tuple[Completion, list[Effect]]] = deque()
        """Groups whose effects are not applied yet, in order, each with its effects."""
        self._arrive_and_settle = arrive_and_settle
        self._open_group: Completion | None = None
        """The group that came last; more effects may still join it."""
        self._effects: list[Effect] = []
        """Effects of the open group."""
        self._run: _Run | None = None
        """The open group's last effect, if arrivals and settlements can still join it."""

    def when_durable(self, completion: Completion, act: Callable[[Any, Any], object], first: Any, second: Any) -> None:
        """Call `act(first, second)` once the group is durable. Operations of one group share a list of effects."""
        self._run = None
        if completion is self._open_group:
            self._effects.append((act, first, second))
            return
        self._open_group = completion
        self._effects = [(act, first, second)]
        self.groups.append((completion, self._effects))
        if self._watch.on:
            completion.add_callback(self._watch.group_done)

    def arrives(self, completion: Completion, message_id: int, queue_id: int) -> None:
        """Bring a reference to its queue once the group is durable.

        Hot path: arrivals of a group share one effect, if no other effect comes between them.
        """
        run = self._run
        if run is None or completion is not self._open_group:
            run = self._begin_run(completion)
        run.arrived.append((message_id, queue_id))

    def settles(self, completion: Completion, message_id: int, queue_id: int) -> None:
        """Settle a reference once the group is durable. Settlements of a group share one effect, as arrivals do."""
        run = self._run
        if run is None or completion is not self._open_group:
            run = self._begin_run(completion)
        run.settled.append((message_id, queue_id))

    def _begin_run(self, completion: Completion) -> _Run:
        run = _Run([], [])
        self.when_durable(completion, self._arrive_and_settle, run.arrived, run.settled)
        self._run = run
        return run

    def close_group(self, completion: Completion) -> None:
        """Note that no effect may join this group any more, because its effects are being applied."""
        if completion is self._open_group:
            self._open_group = self._run = None
