"""What a node does next, decided from what it knows. Pure: facts in, one action and its reason out.

Whoever holds the duty (the nodes' group says who) sees that some node is active. It takes over when nobody is: the
journal was never active, its node left, or the WAL has stood still for longer than an active node may be silent. None
of this makes an activation safe, fencing does; it only keeps nodes from fencing each other for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from loaders.node.liveness import LastActive

ASK_AGAIN = 3
"""A preferred node that was not heard asks again after so many hand-over time-outs."""


class Act(Enum):
    """What a node may do in one turn."""

    WAIT = "wait"
    JOIN = "join"  # the nodes' group
    LEAVE = "leave"  # it
    ACTIVATE = "activate"
    ASK = "ask"  # the active node to hand over to this one
    HAND_OVER = "hand over"
    STEP_DOWN = "step down"


class Decision(NamedTuple):
    """One action, why, and the successor of a hand-over."""

    act: Act
    reason: str = ""
    to: str = ""


class Request(NamedTuple):
    """A hand-over that somebody asked for: of which epoch, to whom (empty: anybody), and how long ago."""

    epoch: int
    to: str
    age_s: float
    awaited: bool = False
    """Whoever asked waits, and withdraws it when that has been too long; others are forgotten after a while."""


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """What a standby knows."""

    newest: LastActive | None
    still_s: float
    """For how long the WAL is known to have stood still."""
    member: bool = False
    granted: bool = False
    fit: bool = False
    built: bool = False
    """The local copy can be read."""
    rested: bool = True
    """No activation of its own has failed just now."""
    others_fit: Sequence[str] = ()
    active_preferred: bool = False
    request: Request | None = None
    activating: str = ""
    """Another node that says that it is activating, and is there: it may wait for workers, or load, for long, and
    writes nothing meanwhile."""
    may_ask: bool = True
    """Nothing says that it had better leave the journal where it is (`loaders.node.resting`)."""


@dataclass(frozen=True, slots=True)
class ActiveFacts:
    """What an active node knows."""

    epoch: int
    newest_epoch: int
    failure: str = ""
    """What the journal met that ended it."""
    member: bool = True
    lapsed: bool = False
    """Its membership ran out by its own clock."""
    current: bool = True
    """Its last commit began recently enough to hand anything out."""
    others_fit: Sequence[str] = ()
    request: Request | None = None


def nobody_fit(to: str) -> str:
    """Why a hand-over to `to` (empty: to anybody) cannot be."""
    return f"{to} is not fit to take over" if to else "no standby is fit to take over"


class Duty:
    """The rules, for one node."""

    def __init__(
        self, name: str, *, silence_s: float, handover_s: float, lone_start_s: float, fail_back: bool = False
    ) -> None:
        """`silence_s` is what an active node never lets pass without a commit, twice, if it did not say itself."""
        self._name = name
        self._silence_s = silence_s
        self._handover_s = handover_s
        self._lone_start_s = lone_start_s
        self._fail_back = fail_back

    # ---- standby ---------------------------------------------------------------------------------------------------

    def standby(self, facts: StandbyFacts) -> Decision:
        """A fit standby belongs to the group. One that is not leaves the duty to those that are, unless there is none,
        or none of them takes over for `lone_start_s`. While its copy is being built it would only wait at its gate, and
        one that becomes fit meanwhile for it."""
        newest, able = facts.newest, facts.rested and facts.built
        if able and newest is not None and newest.released and newest.to == self._name:
            return Decision(Act.ACTIVATE, f"node {newest.node} handed over to this one")
        waited = facts.rested and facts.still_s >= self._lone_start_s
        eligible = not facts.others_fit or waited or (facts.fit and facts.rested)
        if eligible != facts.member:
            if eligible:
                return Decision(Act.JOIN, "fit" if facts.fit else "no standby that is fit takes over")
            return Decision(Act.LEAVE, f"not fit, and {', '.join(facts.others_fit)} is")
        vacancy = self._vacancy(facts)
        if facts.granted and able and vacancy:
            return Decision(Act.ACTIVATE, vacancy)
        if self._fail_back and not vacancy and not facts.activating and self._may_ask(facts):
            return Decision(Act.ASK, "this node is preferred")
        return Decision(Act.WAIT, vacancy)

    def _vacancy(self, facts: StandbyFacts) -> str:
        """Why no node is active; empty while one may be."""
        newest = facts.newest
        if facts.activating:
            return ""
        if newest is None:
            return "no node was ever active"
        if newest.released:
            if newest.to in ("", self._name):
                return f"node {newest.node} left"
            if facts.still_s >= self._handover_s:
                return f"node {newest.node} left, and {newest.to}, to whom it handed over, is not there"
            return ""
        if facts.still_s >= newest.silence_s(self._silence_s / 2):
            return f"node {newest.node} is silent: the WAL has stood still for {facts.still_s:.1f} s"
        return ""

    def _may_ask(self, facts: StandbyFacts) -> bool:
        newest, request = facts.newest, facts.request
        if newest is None or newest.released or newest.node == self._name or facts.active_preferred:
            return False
        pending = request is not None and request.epoch == newest.epoch and request.age_s < ASK_AGAIN * self._handover_s
        return facts.fit and facts.rested and facts.may_ask and not pending

    # ---- active ----------------------------------------------------------------------------------------------------

    def active(self, facts: ActiveFacts) -> Decision:
        """An active node steps down when it is none any more, and hands over when it is asked to and somebody can."""
        if facts.failure:
            return Decision(Act.STEP_DOWN, facts.failure)
        if facts.newest_epoch > facts.epoch:
            return Decision(Act.STEP_DOWN, f"epoch {facts.newest_epoch} has begun")
        if facts.lapsed and not facts.current:
            # one of both alone is a group's coordinator that moved, or a commit that took long
            return Decision(
                Act.STEP_DOWN, "its membership lapsed and it could not commit: cut off from Kafka, or stopped"
            )
        if not facts.member:
            return Decision(Act.JOIN, "active")
        request = facts.request
        if request is None or request.epoch != facts.epoch:
            return Decision(Act.WAIT)
        if request.age_s >= self._handover_s and not request.awaited:
            return Decision(Act.WAIT)
        if request.to:
            to = request.to if request.to in facts.others_fit else ""
        else:
            to = facts.others_fit[0] if facts.others_fit else ""
        if to:
            return Decision(Act.HAND_OVER, f"asked to hand over to {to}", to)
        return Decision(Act.WAIT, nobody_fit(request.to))
