"""What a node's thread does: it looks at the others (`loaders.node.outlook`), decides (`loaders.node.duty`), acts and
reports.

Each activation opens a new `Journal` over the one local copy, so that a caller who still holds the journal of an
earlier epoch can append nothing. A node that was fenced, handed over or failed to activate becomes a standby again by
itself. Fencing alone makes all this safe (`journal.wal.fencing`): the group, the rows and the clocks are advice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack

from journal.activate.activation import FENCE_STEP
from journal.activate.copy import TableCopy
from journal.activate.copy_thread import Fitness
from journal.config import Settings
from journal.errors import ClosedError, FencedError, JournalError, OutcomeUnknownError, OvertakenError
from journal.journal import BlockingJournal
from journal.kafka.membership import Membership
from journal.topics.control_keys import HAND_OVER_KEY, node_key
from journal.topics.control_rows import ControlRows
from journal.v1.journal_pb2 import HandOver
from journal.words import shortened
from loaders.node.asked_handover import AskedHandOver
from loaders.node.duty import Act, ActiveFacts, Duty, NodeDecision, StandbyFacts
from loaders.node.hooks import RoleHooks
from loaders.node.outlook import Outlook
from loaders.node.resting import Resting
from loaders.node.roles import Role
from loaders.node.standing import ActiveNode, NodeOwner, NodeStanding, failover_of
from loaders.node.surroundings import Surroundings

log = logging.getLogger(__name__)

_REPORT_END_S = 5.0
_SUCCESSOR_S = 3.0


class NodeLife:
    """One node from its start to its end. `run` is the body of the node's thread; other threads call the other public
    methods.

    It has many attributes because every step of a life needs them: what the node was given (settings, surroundings,
    copy, owner, hooks), the parts that decide (outlook, duty, resting), and what is true now (the active journal, the
    membership, the next times to report and to join).
    """

    def __init__(
        self,
        settings: Settings,
        surroundings: Surroundings,
        copy: TableCopy,
        rows: ControlRows,
        standing: NodeStanding,
        hooks: RoleHooks,
        owner: NodeOwner,
        asked: AskedHandOver,
        *,
        stop: threading.Event,
    ) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._clock = surroundings.clock
        self._roll = surroundings.roll
        self._reporter = surroundings.reporter
        self._copy = copy
        self._standing = standing
        self._hooks = hooks
        self._owner = owner
        self._asked = asked
        self._stop = stop
        silence_s = 2 * settings.fence_check_ms / 1000
        self._outlook = Outlook(
            surroundings.kafka,
            settings,
            rows,
            self._roll,
            silence_s=silence_s,
            clock=self._clock,
            wall_ms=surroundings.wall_ms,
            pause=surroundings.pause,
        )
        self._duty = Duty(
            settings.node,
            silence_s=silence_s,
            handover_s=settings.handover_timeout_ms / 1000,
            lone_start_s=settings.lone_start_ms / 1000,
            fail_back=settings.fail_back,
        )
        self._resting = Resting(
            rest_s=settings.activation_retry_ms / 1000,
            ask_s=settings.handover_timeout_ms / 1000,
            clock=self._clock,
        )
        self._decided_on = copy.fitness()
        """The copy's fitness when the node last decided to activate. While the copy is lent to a journal, it is never
        fit."""
        self._activating: BlockingJournal | None = None
        self._report_at = 0.0
        self._active: ActiveNode | None = None
        self._critical: list[JournalError] = []
        self._membership: Membership | None = None
        self._join_at = 0.0
        self._namesake = ("", 0)
        """Host and pid of the node with this one's name that was warned of last."""

    def end_activation(self) -> None:
        """End the activation under way, whatever it waits for, and load nothing more. `stop` must be set before."""
        self._copy.end_following()
        journal = self._activating
        if journal is not None:
            journal.end_activation()

    def fitness(self) -> Fitness:
        """Whether this node could take over."""
        return self._resting.told_of(self._copy.fitness())

    @property
    def active_node(self) -> str:
        """The name of the active node, empty if there is none."""
        newest = self._outlook.newest
        return newest.node if newest is not None and not newest.released else ""

    def run(self) -> None:
        """Live until `stop` is set."""
        reason = "asked to stop"
        try:
            self._copy.follow(self._owner.loader)
            self._stand_by("started")
            while not self._stop.is_set():
                self._outlook.wait(self._surroundings.turn_s)
                self._warn_of_namesake()
                self._act(self._decide())
                self._report(due=True)
        except Exception as error:
            log.exception("the node ends")
            reason = shortened(f"failed: {error!r}")
        self._end(reason)

    def _warn_of_namesake(self) -> None:
        other = self._outlook.namesake()
        if other is not None and (other.host, other.pid) != self._namesake:
            self._namesake = (other.host, other.pid)
            who = f"{other.name} reported from {other.host}, pid {other.pid}"
            log.warning("a node %s not long ago: unless that was this one's last life, names must differ", who)

    # ---- deciding --------------------------------------------------------------------------------------------------

    def _decide(self) -> NodeDecision:
        if self._membership is not None and self._membership.ended:
            self._membership = None
            self._join_at = self._clock() + self._settings.activation_retry_ms / 1000
        outlook, membership, active = self._outlook, self._membership, self._active
        newest, others_fit = outlook.newest, outlook.others_fit
        if active is not None:
            return self._duty.active(
                ActiveFacts(
                    epoch=active.report.epoch,
                    newest_epoch=newest.epoch if newest else 0,
                    failure=str(self._critical[0]) if self._critical else "",
                    member=membership is not None,
                    lapsed=membership is not None and membership.lapsed,
                    problem="" if membership is None else membership.problem,
                    current=active.journal.current,
                    others_fit=others_fit,
                    request=self._asked.or_newer(outlook.request),
                )
            )
        return self._duty.standby(self._standby_facts(self._copy.fitness()))

    def _standby_facts(self, fitness: Fitness) -> StandbyFacts:
        outlook, membership = self._outlook, self._membership
        return StandbyFacts(
            newest=outlook.newest,
            still_s=outlook.look_at_wal(),
            member=membership is not None,
            granted=membership is not None and membership.granted,
            fit=fitness.fit,
            built=fitness.built,
            rested=self._resting.rested,
            others_fit=outlook.others_fit,
            active_preferred=outlook.active_preferred,
            request=self._asked.or_newer(outlook.request),
            activating=outlook.activating,
            may_ask=self._resting.may_ask,
        )

    def _act(self, decision: NodeDecision) -> None:
        match decision.act:
            case Act.JOIN:
                self._join(decision.reason)
            case Act.LEAVE:
                self._leave_group(decision.reason)
            case Act.ACTIVATE:
                self._activate(decision.reason)
            case Act.ASK:
                self._ask_active(decision.reason)
            case Act.HAND_OVER:
                self._hand_over()
            case Act.STEP_DOWN:
                self._step_down(decision.reason)

    # ---- group -----------------------------------------------------------------------------------------------------

    def _join(self, reason: str) -> None:
        if self._clock() < self._join_at:
            return
        log.debug("joins the nodes' group: %s", reason)
        self._membership = self._surroundings.join()

    def _leave_group(self, reason: str, *, wait: bool = True) -> None:
        """Leave the group. Without `wait`, the membership ends in the background."""
        membership, self._membership = self._membership, None
        if membership is None:
            return
        log.debug("leaves the nodes' group: %s", reason)
        if wait:
            membership.leave()
        else:
            membership.leave(0.0)

    def _ask_active(self, reason: str) -> None:
        """Ask the active node, by a control row, to hand over to this one."""
        newest = self._outlook.newest
        if newest is None:
            return
        log.info("asks node %s to hand over: %s", newest.node, reason)
        name, uuid = self._settings.node, self._copy.identity.journal
        now_ms = int(self._surroundings.wall_ms())
        self._reporter.post(HAND_OVER_KEY, HandOver(journal=uuid, epoch=newest.epoch, to=name, timestamp=now_ms))
        self._asked.ask(newest.epoch, name, awaited=False)

    # ---- active ----------------------------------------------------------------------------------------------------

    def _activate(self, reason: str) -> None:
        silence_ms = self._outlook.look_at_wal() * 1000
        self._become(Role.ACTIVATING, reason)
        self._decided_on = self._copy.fitness()
        self._critical = []
        journal = self._activating = self._surroundings.journal(self._critical.append, self._show)
        try:
            journal.start()
            report = journal.activate()
            began = self._clock()
            assert journal.loader is not None, "an activation fills one"
            active = ActiveNode(journal, journal.loader, report)
            self._owner.on_active(active)
        except JournalError as error:
            self._fail(journal, error)
            return
        except Exception as error:
            log.exception("the owner's loader or on_active failed")
            self._fail(journal, error)
            return
        finally:
            self._activating = None
        callback_ms = (self._clock() - began) * 1000
        self._outlook.forget_wal()
        failover = failover_of(report, reason, silence_ms, callback_ms, self._surroundings.wall_ms())
        core = journal.require_core()
        self._standing.took_over(failover, lambda: core.recoveries)
        self._active = active
        self._resting.activated()
        self._become(Role.ACTIVE, reason, report.epoch)

    def _show(self, step: str, done: int, total: int) -> None:
        """Show and report the progress of an activation. This raises if the node is to end."""
        if self._stop.is_set():
            raise ClosedError("the node is closing")
        if step == FENCE_STEP:
            self._require_vacancy()
        if self._clock() >= self._report_at:
            self._report()
        self._owner.progress(step, done, total)

    def _require_vacancy(self) -> None:
        """Look again for an active node before fencing one, if the last look is old: Kafka or the local copy may have
        been busy, or the process stopped. If the look fails this raises, and nobody is fenced."""
        if self._outlook.rows_are_recent:
            return
        self._outlook.catch_up()
        facts = self._standby_facts(self._decided_on)
        if self._duty.standby(facts).act is not Act.ACTIVATE:
            raise OvertakenError("this node had to wait before it began, and is not to activate any more")

    def _fail(self, journal: BlockingJournal, error: Exception) -> None:
        """Become a standby again. The next try comes after a pause, unless another node is faster."""
        journal.close()
        if self._stop.is_set():
            return
        if isinstance(error, OvertakenError):
            self._stand_by(str(error))
            return
        self._outlook.forget_wal()
        if isinstance(error, FencedError):
            self._stand_by(f"another node activated first: {error}")
            return
        pause_s = self._resting.failed()
        reason = str(error) if isinstance(error, JournalError) else shortened(repr(error))
        log.error("activation failed, next try in %g s at the earliest: %s", pause_s, reason)
        self._stand_by(f"activation failed: {reason}")

    def _step_down(self, reason: str) -> None:
        """Stop being active without having chosen to. From here on, every append through the journal is refused."""
        active = self._active
        assert active is not None
        error = self._critical[0] if self._critical else self._loss(active.report.epoch, reason)
        active.journal.require_core().step_down(error)
        self._active = None
        self._become(Role.FENCED, reason)
        # the owner's callback may take long, so the duty passes to another node before it
        self._leave_group(reason, wait=False)
        self._tell(lambda: self._owner.on_fenced(error))
        active.journal.close()
        self._stand_by("after it was fenced")

    def _loss(self, epoch: int, reason: str) -> JournalError:
        """Why this node is not active any more. Only a newer epoch says that another node took over; without one, the
        fate of what this node was sending is not known."""
        newest = self._outlook.newest
        if newest is not None and newest.epoch > epoch:
            return FencedError(reason, epoch=newest.epoch)
        return OutcomeUnknownError(f"node {self._settings.node} is no longer active: {reason}")

    def _give_up(self, to: str) -> None:
        """Stop being active in order: first the owner, then the journal, then the row that the successor acts on."""
        active = self._active
        assert active is not None
        self._active = None
        self._tell(self._owner.on_standby)
        active.journal.close(to=to)

    def _hand_over(self) -> None:
        """Hand over to a standby that is still there, if this is still wanted. Otherwise the next turn decides anew."""
        self._outlook.call_roll()
        with self._asked.beginning:
            decision = self._decide()
            if decision.act is not Act.HAND_OVER:
                return
            self._asked.begun = self._standing.epoch
            self._become(Role.STOPPING, decision.reason)
        self._resting.handed_over()
        self._give_up(decision.to)
        # this node joins again at once; leaving gives the duty to the successor
        self._leave_group(decision.reason)
        self._stand_by(f"handed over to {decision.to}")

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("a callback of the node's owner failed")

    # ---- roles -----------------------------------------------------------------------------------------------------

    def _stand_by(self, reason: str) -> None:
        was = self._standing.role
        self._become(Role.STANDBY, reason)
        if was in (Role.STARTING, Role.FENCED):
            self._tell(self._owner.on_standby)

    def _become(self, role: Role, reason: str, epoch: int = 0) -> None:
        was = self._standing.role
        self._standing.become(role, reason, epoch)
        log.info("node %s is %s: %s", self._settings.node, role.value, reason)
        self._report()
        self._hooks.changed(was, role, epoch, reason)

    def _report(self, *, due: bool = False) -> None:
        """Report the node's status. With `due`, report only if it is time, or if the node's fitness has changed."""
        now = self._clock()
        if due and now < self._report_at and not self._standing.fitness_changed():
            return
        self._report_at = now + self._settings.node_report_ms / 1000
        self._reporter.post(node_key(self._settings.node), self._standing.report())
        if self._active is not None:
            for name in self._outlook.long_gone:
                self._reporter.post(node_key(name), None)

    # ---- the end ---------------------------------------------------------------------------------------------------

    def _successor(self) -> str:
        """The best of the fit standbys. If none is fit but one has only fallen behind or is about to join the group,
        this waits a little, unless the node ends because of an error."""
        until = self._clock() + (_SUCCESSOR_S if self._stop.is_set() else 0.0)
        outlook = self._outlook
        outlook.call_roll()
        while not outlook.others_fit and outlook.others_standing_by and self._clock() < until:
            outlook.wait(self._surroundings.turn_s)
            outlook.call_roll()
        return next(iter(outlook.others_fit), "")

    def _end(self, reason: str) -> None:
        self._copy.end_following()
        with ExitStack() as ending:  # each one is called even if another raises an error; the last one is called first
            for close in (self._hooks.close, self._copy.close, self._roll.close, self._outlook.close):
                ending.callback(close)
            ending.callback(self._reporter.close, _REPORT_END_S)
            ending.callback(self._reporter.post, node_key(self._settings.node), None)
            ending.callback(self._leave_group, reason)
            if self._active is not None:
                successor = self._successor()
                self._become(Role.STOPPING, reason)
                self._give_up(successor)
            elif self._standing.role is not Role.STOPPING:
                self._become(Role.STOPPING, reason)
