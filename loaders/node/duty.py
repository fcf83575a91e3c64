"""What a node does next, decided from what it knows. This module is pure: facts go in, one action and its reason come
out.

The nodes' group gives one member the duty to see that some node is active. That member takes over when no node is
active: the journal was never active, its node has left, or the WAL has stood still for longer than an active node may
be silent. Fencing makes an activation safe; these rules only keep nodes from fencing each other for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from loaders.node.liveness import LastActive

ASK_AGAIN = 3
"""After this number of hand-over time-outs, a preferred node whose request got no answer asks again."""


class Act(Enum):
    """What a node may do in one turn."""

    WAIT = "wait"
    JOIN = "join"  # join the nodes' group
    LEAVE = "leave"  # leave the nodes' group
    ACTIVATE = "activate"
    ASK = "ask"  # ask the active node to hand over to this one
    HAND_OVER = "hand over"
    STEP_DOWN = "step down"


class NodeDecision(NamedTuple):
    """One action, its reason, and the successor if the action is a hand-over."""

    act: Act
    reason: str = ""
    to: str = ""


class HandOverRequest(NamedTuple):
    """A request to hand over: the epoch it is meant for, the successor (empty: anybody), and its age."""

    epoch: int
    to: str
    age_s: float
    awaited: bool = False
    """Somebody waits for the hand-over and withdraws the request in the end. Any other request expires."""


@dataclass(frozen=True, slots=True)
class StandbyFacts:
    """The facts about itself and the other nodes from which a standby decides."""

    newest: LastActive | None
    still_s: float
    """The time for which the WAL is known to have stood still."""
    member: bool = False
    granted: bool = False
    fit: bool = False
    built: bool = False
    """The local copy can be read."""
    rested: bool = True
    """None of this node's activations has failed just now."""
    others_fit: Sequence[str] = ()
    active_preferred: bool = False
    request: HandOverRequest | None = None
    activating: str = ""
    """Another running node that reports that it is activating. It may wait for workers, or load, for a long time, and
    writes nothing meanwhile."""
    may_ask: bool = True
    """This node may ask for the journal; `loaders.node.resting` says when it may not."""


@dataclass(frozen=True, slots=True)
class ActiveFacts:
    """The facts about itself from which an active node decides."""

    epoch: int
    newest_epoch: int
    failure: str = ""
    """The error that ended the journal."""
    member: bool = True
    lapsed: bool = False
    """The node's membership has run out by the node's own clock."""
    problem: str = ""
    """The reason why the node is not in the group, if that is known."""
    current: bool = True
    """The node's last commit began recently enough to hand messages out."""
    others_fit: Sequence[str] = ()
    request: HandOverRequest | None = None


def nobody_fit(to: str) -> str:
    """Why a hand-over to `to` (empty: to anybody) is impossible."""
    return f"{to} is not fit to take over" if to else "no standby is fit to take over"


class Duty:
    """Decides what one node does next, as a standby or as the active node."""

    def __init__(
        self, name: str, *, silence_s: float, handover_s: float, lone_start_s: float, fail_back: bool = False
    ) -> None:
        """`silence_s` is how long the WAL must stand still before the active node counts as gone, unless that node said
        its own limit."""
        self._name = name
        self._silence_s = silence_s
        self._handover_s = handover_s
        self._lone_start_s = lone_start_s
        self._fail_back = fail_back

    # ---- standby ---------------------------------------------------------------------------------------------------

    def standby(self, facts: StandbyFacts) -> NodeDecision:
        """Decide for a standby. A fit standby joins the group. An unfit one leaves the duty to the fit standbys, unless
        there is none, or none takes over for `lone_start_s`. An unfit standby never leads before its copy is built: it
        would block its gate while a node that has become fit waits for it."""
        newest, able = facts.newest, facts.rested and facts.built
        if able and newest is not None and newest.released and newest.to == self._name:
            return NodeDecision(Act.ACTIVATE, f"node {newest.node} handed over to this one")
        waited = facts.rested and facts.still_s >= self._lone_start_s
        eligible = not facts.others_fit or waited or (facts.fit and facts.rested)
        if eligible != facts.member:
            if eligible:
                return NodeDecision(Act.JOIN, "fit" if facts.fit else "no standby that is fit takes over")
            return NodeDecision(Act.LEAVE, f"not fit, and {', '.join(facts.others_fit)} is")
        vacancy = self._vacancy(facts)
        if facts.granted and able and vacancy:
            return NodeDecision(Act.ACTIVATE, vacancy)
        if self._fail_back and not vacancy and not facts.activating and self._may_ask(facts):
            return NodeDecision(Act.ASK, "this node is preferred")
        return NodeDecision(Act.WAIT, vacancy)

    def _vacancy(self, facts: StandbyFacts) -> str:
        """Why no node is active; empty while one may be active."""
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

    def active(self, facts: ActiveFacts) -> NodeDecision:
        """Decide for an active node. It steps down once it is no longer the active node, and hands over when it is
        asked to and a standby is fit."""
        if facts.failure:
            return NodeDecision(Act.STEP_DOWN, facts.failure)
        if facts.newest_epoch > facts.epoch:
            return NodeDecision(Act.STEP_DOWN, f"epoch {facts.newest_epoch} has begun")
        if facts.lapsed and not facts.current:
            # one alone is no reason: the group's coordinator may have moved, or a commit taken long
            why = facts.problem or "cut off from Kafka, or stopped"
            return NodeDecision(Act.STEP_DOWN, f"its membership lapsed and it could not commit: {why}")
        if not facts.member:
            return NodeDecision(Act.JOIN, "active")
        request = facts.request
        if request is None or request.epoch != facts.epoch:
            return NodeDecision(Act.WAIT)
        if request.age_s >= self._handover_s and not request.awaited:
            return NodeDecision(Act.WAIT)
        if request.to:
            to = request.to if request.to in facts.others_fit else ""
        else:
            to = facts.others_fit[0] if facts.others_fit else ""
        if to:
            return NodeDecision(Act.HAND_OVER, f"asked to hand over to {to}", to)
        return NodeDecision(Act.WAIT, nobody_fit(request.to))
