"""The fencing model's traces, on the real code: each puts a node at the one step where the design's rule is needed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from journal.append.state import JournalState
from journal.errors import FencedError
from journal.topics.names import control_topic
from tests.simulation.broker import Instance
from tests.simulation.checker import Checker
from tests.simulation.clocks import Clocks
from tests.simulation.disk import Disk
from tests.simulation.faults import Fault, Faults
from tests.simulation.history import History
from tests.simulation.node import Node
from tests.simulation.recording import RecordingBroker
from tests.simulation.scheduler import Scheduler
from tests.simulation.setting import FENCE_CHECK_S, JOURNAL, Setting
from tests.simulation.worker_process import WorkerProcess

SOON_S = 30.0


class Script(Faults):
    """Faults and holds of single requests: (node, request) to what happens to the next one, the one after, …"""

    def __init__(self) -> None:
        self.scheduler: Scheduler | None = None
        self.late_s = 0.5
        self.asked: list[tuple[str, str]] = []
        self.held: set[str] = set()
        self._faults: dict[tuple[str, str], list[Fault]] = {}
        self._holds: dict[tuple[str, str], int] = {}
        self._freezes: dict[tuple[str, str], tuple[int, float]] = {}
        self._freeze_now: dict[str, float] = {}

    def meet(self, node: str, request: str, *faults: Fault) -> None:
        self._faults[node, request] = list(faults)

    def hold(self, node: str, request: str, nth: int = 1) -> None:
        """The node waits before its nth next such request, until it is released."""
        self._holds[node, request] = nth

    def release(self, node: str) -> None:
        self.held.discard(node)

    def freeze_after(self, node: str, request: str, nth: int, seconds: float) -> None:
        """The node freezes when its nth next such request has taken effect, before it knows."""
        self._freezes[node, request] = nth, seconds

    def at(self, request: str, node: str) -> Fault:
        key = node, request
        self.asked.append(key)
        if self._holds.get(key):
            self._holds[key] -= 1
            if self._holds[key] == 0:
                assert self.scheduler is not None
                self.held.add(node)
                self.scheduler.wait(1e6, lambda: node not in self.held)
        if key in self._freezes:
            nth, seconds = self._freezes.pop(key)
            if nth == 1:
                self._freeze_now[node] = seconds
            else:
                self._freezes[key] = nth - 1, seconds
        faults = self._faults.get(key)
        return faults.pop(0) if faults else Fault.NONE

    def freeze_for(self, process: str) -> float:
        return self._freeze_now.pop(process, 0.0)

    def late_by_s(self) -> float:
        return self.late_s


class Stage:
    """A journal with one worker, and nodes that do only what the test asks for."""

    def __init__(self, shards: int = 1, *, rejoin_s: float = 0.0) -> None:
        self.script = Script()
        self.scheduler = Scheduler(Random(1))
        self.script.scheduler = self.scheduler
        self.scheduler.freeze_for = self.script.freeze_for
        self.broker = RecordingBroker(self.scheduler, self.script)
        self.setting = Setting(
            self.broker,
            self.scheduler,
            shards,
            100,
            1000,
            0.02,
            5.0,
            0.0,
            0.0,
            8.0,
            rejoin_s,
            Clocks(self.scheduler, Random(1)),
        )
        self.setting.create_topics()
        self.history = History(shards)
        self._numbers = count(1)
        self.worker = self.start_worker("worker", *range(shards))

    def start_worker(self, name: str, *shards: int) -> WorkerProcess:
        worker = WorkerProcess(self.setting, self.history, name, {})
        worker.wanted = frozenset(shards)
        return worker

    def node(self, name: str) -> Node:
        node = Node(self.setting, self.history, name, Disk(), Random(name), next_number=lambda: next(self._numbers))
        node.busy = False
        return node

    def active_node(self, name: str) -> Node:
        node = self.node(name)
        self.until(lambda: node.active)
        return node

    def until(self, condition: Callable[[], bool]) -> None:
        """Let everybody run until it holds."""
        assert self.scheduler.run(SOON_S, condition), self.scheduler.failures

    def run(self, seconds: float) -> None:
        self.scheduler.run(seconds, lambda: False)

    def until_held(self, node: str) -> None:
        self.until(lambda: node in self.script.held)

    def judge(self) -> None:
        """Nothing that the simulation checks is broken."""
        assert not self.scheduler.failures
        assert Checker(self.broker, self.history, Random(1)).check() == []

    def epochs_active(self) -> list[int]:
        return [tenure.epoch for tenure in self.history.tenures if tenure.active_at is not None]


@pytest.mark.parametrize("committed", [False, True], ids=["before_its_commit", "after_its_commit"])
def test_a_zombie_between_check_and_init_while_its_successor_writes_its_marker(committed: bool) -> None:
    stage = Stage(shards=2)
    zombie = stage.active_node("zombie")
    stage.script.meet("zombie", "end_transaction", Fault.LOSE_REQUEST)
    stage.script.hold("zombie", "init")
    completion = zombie.add(1, b"in doubt")
    stage.until_held("zombie")  # its first check has found nobody
    stage.script.hold("successor", "end_transaction", nth=2 if committed else 1)
    successor = stage.node("successor")
    stage.until_held("successor")  # with its marker written, and with or without its EndTxn
    stage.script.release("zombie")
    stage.until(lambda: completion.done)
    if committed:
        assert isinstance(completion.error, FencedError)  # the check after the init has found the successor's counter
    else:
        assert completion.error is None  # the init has undone the marker: the epoch is the zombie's still
    stage.script.release("successor")
    stage.until(lambda: successor.active)
    stage.until(lambda: not zombie.process.alive or zombie.core is None or zombie.core.state is JournalState.FENCED)
    stage.judge()
    assert stage.epochs_active() == [1, 2]  # where the zombie fenced the READY of epoch 2, another one followed


def test_a_foreign_transaction_left_open_in_the_control_partition_hides_no_newer_epoch() -> None:
    stage = Stage()
    zombie = stage.active_node("zombie")
    stage.script.meet("zombie", "end_transaction", Fault.LOSE_REQUEST)
    stage.script.hold("zombie", "start_and_end")
    completion = zombie.add(1, b"in doubt")
    stage.until_held("zombie")  # it would check the epoch counter now
    stage.script.hold("successor", "add_partitions")
    successor = stage.node("successor")
    stage.until_held("successor")  # it has read the counter and will write the next one
    foreign = stage.broker.init_producer("foreign")
    assert isinstance(foreign, Instance)
    control = control_topic(JOURNAL), 0
    stage.broker.add_partitions("foreign", foreign, [control], 4.0)
    stage.broker.produce("foreign", foreign, *control, [(b"foreign", b"row")])
    stage.script.release("successor")
    stage.until(lambda: successor.active)
    log = stage.broker.log(*control)
    assert log is not None
    assert log.last_stable < log.end  # the newer epoch is committed, behind what is still open
    stage.script.release("zombie")
    before = len([one for one in stage.script.asked if one == ("zombie", "produce")])
    stage.until(lambda: completion.done)
    assert isinstance(completion.error, FencedError)
    assert len([one for one in stage.script.asked if one == ("zombie", "produce")]) == before
    assert log.last_stable == log.end  # it has waited for that
    stage.judge()
    assert stage.epochs_active() == [1, 2]


def test_an_end_of_transaction_that_is_answered_fenced_after_it_succeeded_is_done() -> None:
    stage = Stage(shards=2)
    first = stage.active_node("first")
    ends = stage.script.asked.count(("first", "end_transaction"))
    stage.script.meet("first", "end_transaction", Fault.RETRIED)
    completion = first.add(1, b"written")
    stage.until(lambda: stage.script.asked.count(("first", "end_transaction")) > ends)
    successor = stage.node("successor")
    stage.until(lambda: completion.done)
    assert completion.error is None
    stage.until(lambda: successor.active)
    stage.judge()
    assert 1 in stage.history.tenures[-1].load.seen.records


def test_a_ready_that_is_answered_too_late_makes_nobody_active() -> None:
    stage = Stage()
    stage.script.freeze_after("late", "end_transaction", 2, 2 * FENCE_CHECK_S)
    stage.node("late")
    stage.until(lambda: stage.script.asked.count(("late", "end_transaction")) == 2)
    stage.run(0.1)  # its READY is committed, and it does not know
    quick = stage.active_node("quick")
    assert quick.tenure is not None
    assert quick.tenure.epoch == 2
    stage.run(2 * FENCE_CHECK_S)
    assert 1 not in stage.epochs_active()
    stage.judge()


def test_a_ready_that_was_committed_without_an_answer_makes_nobody_active_but_the_one_behind_it_does() -> None:
    stage = Stage(shards=2)
    stage.script.meet("node", "end_transaction", Fault.NONE, Fault.LOSE_RESPONSE)  # the claim's, and READY's
    node = stage.active_node("node")
    assert stage.epochs_active() == [1]
    assert stage.script.asked.count(("node", "end_transaction")) == 3
    completion = node.add(1, b"first")
    stage.until(lambda: completion.done)
    assert completion.error is None
    stage.judge()


def test_a_ready_without_an_answer_is_followed_by_another_one_though_the_tails_could_not_be_read_at_once() -> None:
    stage = Stage()
    stage.script.meet("node", "end_transaction", Fault.NONE, Fault.LOSE_RESPONSE)
    stage.script.hold("node", "init", nth=2)
    node = stage.node("node")
    stage.until_held("node")
    stage.script.meet("node", "start_and_end", Fault.NONE, Fault.LOSE_REQUEST)  # the second check's, and the tails'
    stage.script.release("node")
    stage.until(lambda: node.active)
    assert stage.epochs_active() == [1]
    assert stage.script.asked.count(("node", "init")) == 3
    stage.judge()


@pytest.mark.parametrize("checked", [False, True], ids=["before_its_init", "behind_its_check"])
def test_a_ready_without_an_answer_is_nothing_when_another_node_has_activated_since(checked: bool) -> None:
    stage = Stage()
    stage.script.meet("late", "end_transaction", Fault.NONE, Fault.LOSE_RESPONSE)
    stage.script.hold("late", "init", nth=2)
    stage.node("late")
    stage.until_held("late")  # its READY is committed; its first check has found the epoch its own
    if checked:
        stage.script.hold("late", "start_and_end", nth=2)
        stage.script.release("late")
        stage.until(lambda: stage.script.asked.count(("late", "init")) == 2)
        stage.until_held("late")  # and so has the second; it would look for its READY
    quick = stage.active_node("quick")
    assert quick.tenure is not None
    assert quick.tenure.epoch == 2
    stage.script.release("late")
    stage.run(2 * FENCE_CHECK_S)
    assert 1 not in stage.epochs_active()
    stage.judge()


def test_tails_are_read_after_the_init_when_the_predecessor_writes_nothing_more() -> None:
    stage = Stage(shards=2)
    first = stage.active_node("first")
    stage.script.hold("successor", "init")
    successor = stage.node("successor")
    stage.until_held("successor")
    completions = []
    for record_id in (1, 2, 3):
        completions.append(first.add(record_id, b"%d" % record_id))
        stage.until(lambda: completions[-1].done)
    stage.script.release("successor")
    stage.until(lambda: successor.active)
    assert [completion.error for completion in completions] == [None, None, None]
    assert set(stage.history.tenures[-1].load.seen.records) == {1, 2, 3}
    stage.judge()


def test_tails_are_read_again_after_an_activation_that_wrote_nothing() -> None:
    stage = Stage(shards=2)
    first = stage.active_node("first")
    stage.script.meet("successor", "end_transaction", Fault.LOSE_REQUEST)
    stage.script.hold("successor", "init", nth=2)
    successor = stage.node("successor")
    stage.until_held("successor")  # its counter and markers met a time-out; it would initialise again
    completion = first.add(1, b"between")  # fenced by the first init, it finds the epoch its own still
    stage.until(lambda: completion.done)
    assert completion.error is None
    stage.script.release("successor")
    stage.until(lambda: successor.active)
    assert set(stage.history.tenures[-1].load.seen.records) == {1}
    stage.judge()


def test_an_end_of_transaction_that_the_library_repeats_does_not_commit_half_of_the_next_group() -> None:
    stage = Stage(shards=2)
    node = stage.active_node("node")
    stage.script.meet("node", "end_transaction", Fault.REPEATED)
    first = node.add(1, b"first")
    stage.until(lambda: first.done)
    stage.script.hold("node", "produce", nth=2)
    second = [node.add(record_id, b"second, %d" % record_id) for record_id in (2, 3)]
    stage.until_held("node")  # one shard of the group is written, the other not
    stage.run(2 * stage.script.late_s)  # the copy of the first EndTxn has arrived
    wal = stage.broker.topics["sim.wal"].logs
    assert [log.last_stable < log.end for log in wal].count(True) == 1
    stage.script.release("node")
    stage.until(lambda: second[0].done)
    assert second[0].error is None
    stage.judge()


def test_a_node_whose_ready_may_have_been_sent_twice_is_active_and_checks_before_its_first_group() -> None:
    stage = Stage()
    stage.script.meet("node", "end_transaction", Fault.NONE, Fault.REPEATED)  # the claim's, and READY's
    node = stage.active_node("node")
    assert stage.epochs_active() == [1]
    completion = node.add(1, b"first")
    stage.until(lambda: completion.done)
    assert completion.error is None
    assert stage.script.asked.count(("node", "init")) == 2
    stage.judge()
