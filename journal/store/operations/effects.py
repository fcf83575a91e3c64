"""What accepted operations mean for the queues once their groups are durable.

What an operation adds becomes visible when its group is committed. Until then the group's effects wait here, in the
order of acceptance; whoever enters the store next carries out those of all groups that are done. So nothing has to be
woken, and the journal's writer never waits for a caller that waits for the journal's room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from journal.append.completion import Completion

Effect = tuple[Callable[[Any, Any], object], Any, Any]
"""A function, and the two arguments with which it is called once a group is durable."""

References = list[tuple[int, int]]
"""References as (message, queue)."""


class _Run(NamedTuple):
    """References that one group brings to their queues, and references that it settles."""

    arrived: References
    settled: References


class GroupEffects:
    """Effects that wait for their groups. The store's lock guards them."""

    __slots__ = ("_arrive_and_settle", "_effects", "_open_group", "_run", "groups")

    def __init__(self, arrive_and_settle: Callable[[References, References], None]) -> None:
        """`arrive_and_settle` brings references that are durable to their queues, and settles others."""
        self.groups: deque[tuple[Completion, list[Effect]]] = deque()
        """Groups that are not carried out yet, in order, each with its effects."""
        self._arrive_and_settle = arrive_and_settle
        self._open_group: Completion | None = None
        """The group that came last; more effects may still join it."""
        self._effects: list[Effect] = []
        """Effects of the open group."""
        self._run: _Run | None = None
        """The open group's last effect, if arrivals and settlements can still join it."""

    def when_durable(self, completion: Completion, act: Callable[[Any, Any], object], first: Any, second: Any) -> None:
        """Call `act(first, second)` once the group is durable. Operations of one group share its list."""
        self._run = None
        if completion is self._open_group:
            self._effects.append((act, first, second))
            return
        self._open_group = completion
        self._effects = [(act, first, second)]
        self.groups.append((completion, self._effects))

    def arrives(self, completion: Completion, message_id: int, queue_id: int) -> None:
        """A reference arrives in its queue once the group is durable.

        Hot path: arrivals of a group share one effect, if no other effect comes between them.
        """
        run = self._run
        if run is None or completion is not self._open_group:
            run = self._begin_run(completion)
        run.arrived.append((message_id, queue_id))

    def settles(self, completion: Completion, message_id: int, queue_id: int) -> None:
        """A reference is settled once the group is durable. Settlements share one effect as arrivals do."""
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
        """Nothing joins this group any more: its effects are carried out."""
        if completion is self._open_group:
            self._open_group = self._run = None
