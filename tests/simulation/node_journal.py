"""A simulated node's journal: what `JournalRuntime` does with threads, with tasks, and callers beside it."""

from __future__ import annotations

from journal.activate.activation import Activation, ActivationReport
from journal.activate.released import say_left
from journal.activate.warm_state import Following
from journal.append.core import Core
from journal.append.state import JournalState
from journal.append.writing import Activated, Claim
from journal.errors import ClosedError, CorruptionError, FencedError, JournalError, TopicError
from journal.load.loading import Loader
from journal.process.progress import Progress, no_progress
from tests.simulation.history import CapturedLoad, Tenure
from tests.simulation.node_copy import NodeCopy, identity_of_copy
from tests.simulation.node_process import NodeProcess
from tests.simulation.setting import FENCE_CHECK_S, GATE_S, LIMITS, OnCritical, node_settings
from tests.simulation.taking_in import Taking
from tests.simulation.workload import Workload

_IDLE_S = 0.5
"""How often a caller that has nothing to append looks whether its node is still the active one."""


class NodeJournal:
    """`BlockingJournal` over a node's copy, as far as nodes use it."""

    def __init__(
        self,
        node: NodeProcess,
        copy: NodeCopy,
        on_critical: OnCritical | None = None,
        progress: Progress = no_progress,
    ) -> None:
        setting = node.setting
        self.loader: Loader | None = None
        self.report: ActivationReport | None = None
        self.tenure: Tenure | None = None
        self._node = node
        self._setting = setting
        self._scheduler = setting.scheduler
        self._history = node.history
        self._copy = copy
        self._kafka = setting.kafka(node.name)
        self._progress = progress
        self._closing = False
        self._writing = False
        self._core = Core(setting.shards, setting.limits, setting.timing(node.name), on_critical)

    # ---- lifecycle ---------------------------------------------------------------------------------------------

    @property
    def current(self) -> bool:
        return self._core.current

    def require_core(self) -> Core:
        return self._core

    def start(self) -> None:
        self._core.become(JournalState.STARTED)
        self._node.core = self._core

    def activate(self) -> ActivationReport:
        """One try. Raises what it meets; unless that is FencedError it may be called again."""
        core = self._core
        core.become(JournalState.LOADING)
        try:
            activated = self._activated()
        except Exception as error:
            if isinstance(error, FencedError):
                core.step_down(error)
            else:
                core.become(JournalState.STARTED)
            raise
        core.activate(activated)
        self._copy.keep_lent(activated.writer.claim, self._see_newer)
        self._told_active()
        return self.report

    def _activated(self) -> Activated:
        copy = self._copy
        copy.lend()
        activation = self._activation()
        try:
            activated = activation.run(copy.following)
        except Exception as error:
            self._note_load(copy.following, activation.report)
            self._judge(error)
            copy.give_back(error if isinstance(error, JournalError) else JournalError(repr(error)))
            if activation.report.epoch and not isinstance(error, FencedError):
                self._say_left(activation.report.epoch)
            raise
        except BaseException:
            self._note_load(copy.following, activation.report)
            raise
        self._note_load(copy.following, activation.report)
        self.loader, self.report = copy.following.loader, activation.report
        return activated

    def _activation(self) -> Activation:
        node, setting, copy = self._node, self._setting, self._copy
        self._history.activations += 1

        def require_same_table() -> None:
            if identity_of_copy(setting, self._kafka) != copy.replica.identity:
                raise TopicError("the table was made anew")

        return Activation(
            self._kafka,
            setting.writer_config,
            LIMITS,
            lambda epoch: Claim(epoch, node.name, node.next_number().to_bytes(16, "big")),
            copy.replica,
            copy.store,
            setting.timing(node.name),
            require_same_table=require_same_table,
            gate_s=GATE_S,
            wall_ms=setting.wall_ms(node.name),
            progress=self._progress,
            require_open=self._require_open,
        )

    def _judge(self, error: Exception) -> None:
        """A node takes every error for a failed activation; not all need be."""
        if isinstance(error, CorruptionError) or not isinstance(error, JournalError):
            self._node.require_outside(error)

    def _require_open(self) -> None:
        if self._closing:
            raise ClosedError("the journal was closed while it was being activated")

    def _note_load(self, following: Following, report: ActivationReport) -> None:
        """A load counts from the moment it is complete, whatever becomes of READY."""
        if following.failure is not None:
            self._node.require_outside(following.failure)
        load = following.loader
        if not isinstance(load, CapturedLoad) or load.counts is None:
            return
        load.marks = self._copy.replica.marks()
        self._history.warm_loads += report.warm
        self.tenure = Tenure(report.epoch, self._node.name, load)
        self._history.tenures.append(self.tenure)

    def _told_active(self) -> None:
        tenure, now = self.tenure, self._scheduler.now()
        assert tenure is not None
        newest = self._history.newest_active()
        if newest is not None and newest.epoch > tenure.epoch and (newest.active_at or now) < now - FENCE_CHECK_S:
            self._history.violate(
                f"superseded: epoch {tenure.epoch} becomes active {now - (newest.active_at or now):.1f} s after "
                f"epoch {newest.epoch} did"
            )
        tenure.active_at = now
        self._node.tenure = tenure

    def end_activation(self) -> None:
        self._closing = True

    def begin_close(self) -> None:
        self._closing = self._node.work = True

    def close(self, *, to: str = "") -> None:
        """Write what was accepted, say that this node left, give the copy back."""
        core = self._core
        self.begin_close()
        core.begin_close()
        while self._writing:
            self._scheduler.wait(FENCE_CHECK_S, lambda: not self._writing)
        if core.state is JournalState.ACTIVE and self.report is not None:
            self._say_left(self.report.epoch, to)
        core.end_close()
        if self.tenure is not None:
            self.tenure.ended = True
        if self._copy.lent:
            self._copy.give_back()

    def _say_left(self, epoch: int, to: str = "") -> None:
        setting = self._setting
        say_left(self._kafka, node_settings(setting.shards, self._node.name), setting.identity, epoch, to)

    # ---- its tasks ---------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Begin to write, and to be called."""
        spawn, process = self._scheduler.spawn, self._node.process
        self._writing = True
        spawn(process, self._write)
        spawn(process, self._call)
        if self._node.takes_in:
            spawn(process, self._take_in)

    def _write(self) -> None:
        node = self._node
        while True:
            self._scheduler.wait(FENCE_CHECK_S / 4, lambda: node.work)
            node.work = False
            if self._closing:
                self._core.begin_close()
            if not self._core.step(0.0):
                self._closing = True
                self._writing = False
                return

    @property
    def is_written(self) -> bool:
        """Whether its writer has come to its end."""
        return not self._writing

    def _see_newer(self, epoch: int) -> None:
        self._core.step_down(FencedError(f"the tables are at epoch {epoch}", epoch=epoch))

    def _call(self) -> None:
        tenure, scheduler, node, core = self.tenure, self._scheduler, self._node, self._core
        assert tenure is not None
        workload = Workload(core, tenure, self._history, node.chance, node.next_number)
        while not self._closing and core.state is JournalState.ACTIVE:
            if not node.busy:
                scheduler.wait(_IDLE_S, lambda: node.busy)
                continue
            self._check_current(tenure)
            room = workload.burst()
            node.work = True
            if room is not None:
                scheduler.wait(5.0, lambda room=room: room.done)  # type: ignore[misc]
            scheduler.pause(node.chance.choice((0.001, 0.004, 0.02, 0.05)))

    def _take_in(self) -> None:
        assert self.tenure is not None
        node = self._node

        def woken() -> None:
            node.work = True

        taking = Taking(
            self._core,
            self.tenure,
            self._kafka,
            self._scheduler,
            node.chance,
            next_number=node.next_number,
            woken=woken,
        )
        taking.run(lambda: node.busy and not self._closing)

    def _check_current(self, tenure: Tenure) -> None:
        """A node that still hands out must not be one whose successor has long been active."""
        newest = self._history.newest_active()
        if newest is None or newest.epoch <= tenure.epoch or newest.active_at is None or not self._core.current:
            return
        since = self._scheduler.now() - newest.active_at
        if since > FENCE_CHECK_S:
            self._history.violate(
                f"fenced: epoch {tenure.epoch} hands out, {since:.1f} s after epoch {newest.epoch} became active"
            )
