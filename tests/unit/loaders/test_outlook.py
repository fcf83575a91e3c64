"""When a standby looks at the WAL: now and then, and once more when it would have stood still for long enough. Which
other standbys count. What it knows once it has caught up."""

from __future__ import annotations

import logging

import pytest

from journal.config import Settings
from journal.errors import OperatingError
from journal.kafka.ports import Sent
from journal.topics.control_keys import IDENTITY_KEY, control_row, node_key
from journal.topics.control_rows import ControlRows
from journal.topics.names import control_topic, wal_topic
from journal.v1.journal_pb2 import Identity, NodeStatus
from journal.wire.frames import FORMAT, MAGIC
from loaders.node.liveness import FORGOTTEN_AFTER_MS
from loaders.node.outlook import Outlook
from tests.simulation.broker import SimulatedBroker
from tests.simulation.faults import Faults
from tests.simulation.kafka import SimulatedKafka
from tests.simulation.timeline import Timeline

SETTINGS = Settings(journal="j", fence_check_ms=3000)
SILENCE_S = 6.0
TURN_S = 0.05


class Group:
    """`outlook.Present`, as the test has it."""

    def __init__(self) -> None:
        self.members: frozenset[str] | None = None
        self.gone: set[str] = set()

    def has_left(self, name: str) -> bool:
        return name in self.gone

    def call(self, timeout_s: float) -> None: ...


class Watching:
    """A node's thread that does nothing but look, turn after turn."""

    def __init__(self, *, records_per_poll: int = 100, ahead_ms: float = 0.0) -> None:
        """`ahead_ms` is how far this machine's clock is ahead of the brokers'."""
        self.broker = SimulatedBroker(Timeline(), Faults())
        self.now = self.broker.timeline.now
        self.kafka = SimulatedKafka(self.broker, records_per_poll=records_per_poll)
        for topic in (wal_topic("j"), control_topic("j")):
            self.broker.create_topic(topic, 1, 1, {})
        self.group = Group()
        rows = ControlRows(identity=Identity(shards=1))
        self.outlook = Outlook(
            self.kafka,
            SETTINGS,
            rows,
            self.group,
            silence_s=SILENCE_S,
            clock=self.now,
            wall_ms=lambda: self.now() * 1000 + ahead_ms,
            pause=self._pass,
        )

    def _pass(self, seconds: float) -> None:
        self.broker.timeline.pass_to(self.now() + seconds)

    def turn(self, seconds: float = TURN_S) -> float:
        self._pass(seconds)
        return self.outlook.look_at_wal()

    def see(self, *standbys: NodeStatus) -> None:
        """The reports of these, as of now."""
        self.report(*standbys)
        self.outlook.wait(0.0)

    def report(self, *standbys: NodeStatus) -> None:
        for status in standbys:
            row = Sent(control_topic("j"), 0, node_key(status.name), status.SerializeToString())
            self.kafka.plain_producer().send([row], 1.0)

    def write(self, shard: int = 0) -> None:
        self.kafka.plain_producer().send([Sent(wal_topic("j"), shard, None, b"frame")], 1.0)

    def make_anew(self, shards: int) -> None:
        """The journal's topics, with so many shards."""
        for topic, partitions in ((wal_topic("j"), shards), (control_topic("j"), 1)):
            self.broker.delete_topic(topic)
            self.broker.create_topic(topic, partitions, 1, {})
        row = control_row("j", IDENTITY_KEY, Identity(magic=MAGIC, format=FORMAT, journal=b"j" * 16, shards=shards))
        self.kafka.plain_producer().send([row], 1.0)


@pytest.fixture
def watching(request: pytest.FixtureRequest) -> Watching:
    return Watching(ahead_ms=getattr(request, "param", 0.0))


HOUR_MS = 3_600_000.0
WHATEVER_THE_CLOCK_SAYS = pytest.mark.parametrize(
    "watching", [0.0, HOUR_MS, -HOUR_MS], indirect=True, ids=["right", "an hour ahead", "an hour behind"]
)


def test_a_wal_that_moves_has_not_stood_still(watching: Watching) -> None:
    for _ in range(40):
        watching.write()
        assert watching.turn(SETTINGS.fence_check_ms / 1000) == 0.0


@pytest.mark.parametrize("turns_before", range(7))
def test_a_silent_writer_is_noticed_soon_after_the_bound_and_never_before(
    watching: Watching, turns_before: int
) -> None:
    watching.turn()
    for _ in range(turns_before):
        watching.turn()
    watching.write()
    died_at = watching.now()
    while watching.turn() < SILENCE_S:
        assert watching.now() < died_at + 10 * SILENCE_S
    assert SILENCE_S <= watching.now() - died_at <= SILENCE_S + 0.4


def test_what_was_seen_before_this_node_wrote_itself_counts_no_more(watching: Watching) -> None:
    watching.turn()
    assert watching.turn(SILENCE_S) >= SILENCE_S
    watching.outlook.forget_wal()
    assert watching.turn() == 0.0


def test_every_shard_is_watched_of_a_journal_that_was_made_anew_with_more(watching: Watching) -> None:
    watching.turn()
    watching.make_anew(shards=2)
    watching.outlook.catch_up()
    for _ in range(3):
        watching.write(shard=1)
        assert watching.turn(SILENCE_S) == 0.0


def test_a_wal_that_cannot_be_read_is_told_once_while_control_rows_can(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    watching.broker.delete_topic(wal_topic("j"))
    for _ in range(3):
        watching.turn(1.0)
        watching.see(standby("one"))
    watching.broker.create_topic(wal_topic("j"), 1, 1, {})
    watching.turn(1.0)
    unreadable, readable = [record.getMessage() for record in caplog.records if record.name == "loaders.node.outlook"]
    assert unreadable.startswith("the WAL cannot be read: ")
    assert readable == "the WAL can be read again"


def standby(name: str, *, fit: bool = True) -> NodeStatus:
    return NodeStatus(name=name, role="standby", fit=fit, report_ms=5000)


@WHATEVER_THE_CLOCK_SAYS
def test_a_standby_is_fit_while_it_reports_and_is_in_the_group(watching: Watching) -> None:
    outlook = watching.outlook
    watching.see(standby("one"), standby("two"), standby("behind", fit=False), standby(SETTINGS.node))
    assert outlook.others_fit == ["one", "two"]
    watching.group.members = frozenset({"two", SETTINGS.node})
    assert outlook.others_fit == ["two"]
    watching.group.members = None
    watching.turn(9.0)
    assert outlook.others_fit == ["one", "two"]
    watching.turn(1.0)
    assert outlook.others_fit == []


@WHATEVER_THE_CLOCK_SAYS
def test_a_node_that_activates_is_seen_while_it_reports_and_has_not_left(watching: Watching) -> None:
    outlook = watching.outlook
    watching.see(standby("one"), NodeStatus(name=SETTINGS.node, role="activating", report_ms=5000))
    assert outlook.activating == ""
    watching.see(NodeStatus(name="two", role="activating", report_ms=5000))
    assert outlook.activating == "two"
    watching.group.gone = {"two"}
    assert outlook.activating == ""
    watching.group.gone = set()
    watching.turn(11.0)
    assert outlook.activating == ""


def test_a_node_that_says_it_is_active_wrote_before_it_said_so(watching: Watching) -> None:
    watching.see(NodeStatus(name="two", role="activating", report_ms=5000))
    watching.turn()
    assert watching.turn(SILENCE_S) >= SILENCE_S
    watching.write()
    watching.see(NodeStatus(name="two", role="active", report_ms=5000))
    assert (watching.outlook.activating, watching.outlook.look_at_wal()) == ("", 0.0)


@WHATEVER_THE_CLOCK_SAYS
def test_a_node_that_is_about_to_join_stands_by_and_one_that_left_does_not(watching: Watching) -> None:
    outlook = watching.outlook
    assert not outlook.others_standing_by
    watching.see(standby("one", fit=False))
    watching.group.members = frozenset()
    assert outlook.others_standing_by
    watching.group.gone = {"one"}
    assert not outlook.others_standing_by
    watching.group.gone = set()
    watching.turn(11.0)
    assert not outlook.others_standing_by


def test_what_was_not_taken_yet_is_known_after_catching_up() -> None:
    watching = Watching(records_per_poll=1)
    outlook = watching.outlook
    watching.see(standby("one"))
    watching.report(standby("two"), standby("three"), standby("four"))
    outlook.wait(0.0)
    assert "four" not in outlook.others_fit
    outlook.catch_up()
    assert outlook.others_fit == ["four", "one", "three", "two"]


def test_catching_up_fails_where_waiting_goes_on_with_what_is_known(watching: Watching) -> None:
    outlook = watching.outlook
    watching.see(standby("one"))
    watching.broker.delete_topic(control_topic("j"))
    with pytest.raises(OperatingError):
        outlook.catch_up()
    outlook.wait(0.0)
    assert outlook.others_fit == ["one"]


def test_the_report_of_a_node_that_is_long_gone_may_be_deleted_and_no_other(watching: Watching) -> None:
    own = SETTINGS.node
    watching.see(*(NodeStatus(name=name, role="standby", report_ms=1000) for name in ("gone", own)))
    watching.turn(FORGOTTEN_AFTER_MS / 2000)
    watching.see(NodeStatus(name="dead", role="standby", report_ms=1000))
    assert watching.outlook.long_gone == []
    watching.turn(FORGOTTEN_AFTER_MS / 2000 + 1)
    watching.see(NodeStatus(name="alive", role="standby", report_ms=1000))
    assert watching.outlook.long_gone == ["gone"]
