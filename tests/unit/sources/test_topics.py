"""Topics of sources that vanish, or that may not be seen or read whole: each stops its own source at most."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from journal.errors import InvalidOperationError
from journal.kafka.ports import Position
from journal.process.commands import command
from journal.sources.beginnings import BegunTopic
from journal.sources.identities import require_none_outlived
from journal.store.model import QueueConfig
from tests.unit.sources.scene import SourcesScene

IN = {"name": "in", "pattern": "t.*", "address": "a"}
OTHER = {"name": "other", "topics": ["u"], "address": "a"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SourcesScene]:
    made = SourcesScene(tmp_path)
    made.broker.topic("t")
    made.broker.topic("u")
    made.declare(QueueConfig("a", "a"))
    yield made
    made.close()


def test_topics_whose_settings_nobody_may_see_are_consumed(scene: SourcesScene) -> None:
    scene.broker.closed |= {"t", "u"}
    scene.broker.produce("t", b"1")
    scene.broker.produce("u", b"2")
    with scene.taking(IN, OTHER):
        scene.wait_committed("t", 1)
        scene.wait_committed("u", 1)


def test_a_new_topic_that_may_not_be_read_stops_its_source_alone_until_it_may_be(scene: SourcesScene) -> None:
    """Kafka takes no offset of a topic that may not be read, nor those that are committed with it."""
    scene.broker.committed |= {("t", 0): 0}
    scene.broker.topic("t-2")
    scene.broker.refuses = lambda offsets, beside: "no" if ("t-2", 0) in offsets else ""
    scene.broker.produce("u", b"1")
    scene.broker.produce("t-2", b"2")
    with scene.taking(IN, OTHER):
        assert scene.wait_stopped("in").startswith("where it begins in t-2 cannot be committed: ")
        scene.wait_committed("u", 1)
        scene.broker.refuses = lambda offsets, beside: ""
        scene.wait_committed("t-2", 1)
        scene.wait_until(lambda: scene.source("in")["error"] == "")


def test_a_topic_that_a_consumer_finds_gone_stops_no_pattern(scene: SourcesScene) -> None:
    scene.broker.topic("t-2")
    with scene.taking(IN, list_every_s=1000):
        scene.wait_until(lambda: ("t-2", 0) in scene.broker.committed)
        del scene.broker.topics["t-2"], scene.broker.committed["t-2", 0]  # Kafka deletes its offsets with it
        scene.broker.gone.add("t-2")
        scene.broker.produce("t", b"1")
        scene.wait_committed("t", 1)
        assert scene.source("in")["error"] == ""


def test_a_topic_that_a_consumer_finds_gone_although_it_is_listed_stops_its_source(scene: SourcesScene) -> None:
    with scene.taking(IN, OTHER, list_every_s=1000):
        scene.wait_until(lambda: ("t", 0) in scene.broker.committed)
        scene.broker.gone.add("t")
        assert scene.wait_stopped("in") == "topic t is gone"
        assert scene.source("in")["state"] == "stopped"
        scene.broker.produce("u", b"1")
        scene.wait_committed("u", 1)


def test_a_topic_of_which_brokers_disagree_whether_it_is_there_is_tried_again_with_growing_pauses(
    scene: SourcesScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.broker.committed["t", 0] = 0
    scene.broker.denied.add("t")
    scene.broker.produce("t", b"1")
    with scene.taking(IN, list_every_s=1000):
        scene.wait_until(lambda: "in 0.2 s: a broker says that topic t is not there" in caplog.text)
        assert scene.status.as_json()["state"] == "waiting"
        scene.broker.denied.clear()
        scene.wait_committed("t", 1)
    assert scene.bodies("a") == [b"1"]


def test_a_source_whose_partition_is_gone_goes_on_once_its_offset_is_deleted(scene: SourcesScene) -> None:
    scene.broker.committed |= {("t-2", 0): 3, ("t", 0): 0}
    scene.broker.produce("t", b"1")
    with scene.taking(IN):
        assert "t-2[0] is gone" in scene.wait_stopped("in")
        assert scene.source("in")["state"] == "waiting"
        del scene.broker.committed["t-2", 0]
        scene.wait_committed("t", 1)
        scene.wait_until(lambda: scene.source("in")["error"] == "")


def test_why_a_source_is_stopped_is_no_longer_than_what_is_read(
    scene: SourcesScene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.broker.produce("t", b"", headers=[("kafka-journal.property.string.to", b"x" * 800_000)])
    with scene.taking(IN | {"address": "{to}"}):
        assert "bad-address" in scene.wait_stopped("in")
    assert len(scene.source("in")["error"]) < 1500
    assert max(len(record.getMessage()) for record in caplog.records) < 1500


def test_a_source_that_is_stopped_is_behind_all_the_same(scene: SourcesScene) -> None:
    scene.broker.produce("t", b"\xff", b"2", b"3")
    with scene.taking(IN | {"value": "text"}):
        scene.wait_stopped("in")
        scene.wait_until(lambda: scene.source("in")["lag"] == 3)
        scene.broker.produce("t", b"4")
        scene.wait_until(lambda: scene.source("in")["lag"] == 4)
        scene.stops.ask("in", skip=True)
        scene.wait_committed("t", 4)
        scene.wait_until(lambda: scene.source("in")["lag"] == 0)


# ---- topics that are deleted and made anew --------------------------------------------------------------------------

REPLIES = {"name": "in", "topics": ["t"], "replies": True}
T, U = BegunTopic("t-0", 1), BegunTopic("u-1", 1)
"""The topics of the scene, as rows have them."""
TO_A = [("jms.string.JMSDestination", b"a")]


@pytest.mark.parametrize("source", [IN, IN | {"start": "latest"}, {**IN, "pattern": "", "topics": ["t"]}, REPLIES])
def test_nothing_is_taken_of_a_topic_that_was_made_anew_until_the_old_ones_positions_are_gone(
    scene: SourcesScene, source: dict[str, object]
) -> None:
    with scene.taking(source, OTHER, list_every_s=1000):
        scene.wait_committed("t", 0)
        scene.wait_until(lambda: ("t", 0) in scene.broker.committed)
        scene.broker.produce("t", b"1", b"2", headers=TO_A)
        scene.wait_committed("t", 2)
        old = scene.broker.topics["t"].topic_id
        scene.broker.topic("t")
        scene.broker.produce("t", b"3", b"4", b"5", headers=TO_A)
        assert "topic t was deleted and made anew" in scene.wait_stopped("in")
        assert (scene.broker.committed["t", 0], scene.broker.committed_ids["t", 0]) == (2, old)
        scene.stops.ask("in", skip=False)
        scene.broker.produce("u", b"6")
        scene.wait_committed("u", 1)
        scene.wait_until(lambda: scene.stops.asked() is None)
        assert "topic t was deleted and made anew" in scene.wait_stopped("in")
        assert scene.bodies("a") == [b"1", b"2", b"6"]
        del scene.broker.committed["t", 0]
        scene.stops.ask("in", skip=False)
        scene.wait_committed("t", 3)
        assert scene.bodies("a") == [b"1", b"2", b"6", b"3", b"4", b"5"]
        assert scene.broker.committed_ids["t", 0] == scene.broker.topics["t"].topic_id


def test_positions_of_a_topic_that_was_exchanged_while_no_node_was_active_stop_its_source(scene: SourcesScene) -> None:
    scene.broker.committed["t", 0], scene.broker.committed_ids["t", 0] = 1, "another"
    scene.broker.produce("t", b"1", b"2")
    with scene.taking(IN):
        assert "topic t was deleted and made anew" in scene.wait_stopped("in")
        scene.broker.committed_ids["t", 0] = ""  # as a tool sets offsets
        scene.stops.ask("in", skip=False)
        scene.wait_committed("t", 2)
    assert scene.bodies("a") == [b"2"]


@pytest.mark.parametrize("stopped_before", [False, True])
def test_a_latest_source_takes_a_topic_from_its_beginning_that_was_exchanged_before_the_next_node_was_active(
    scene: SourcesScene, stopped_before: bool
) -> None:
    """Kafka deletes a topic's offsets with it: only the journal knows that the source had begun."""
    source = IN | {"start": "latest"}
    scene.broker.produce("t", b"before")
    with scene.taking(source):
        scene.wait_committed("t", 1)
        scene.broker.produce("t", b"1")
        scene.wait_committed("t", 2)
        if stopped_before:
            scene.broker.topic("t")
            scene.wait_stopped("in")
    if not stopped_before:
        scene.broker.topic("t")
    del scene.broker.committed["t", 0]
    scene.broker.produce("t", b"2", b"3")
    with scene.taking(source):
        scene.wait_committed("t", 2)
    assert scene.bodies("a") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("start", ["latest", "earliest"])
@pytest.mark.parametrize("source", [IN, REPLIES], ids=["pattern", "replies"])
def test_a_source_whose_offsets_kafka_forgot_stops_until_an_operator_has_it_go_on(
    scene: SourcesScene, source: dict[str, object], start: str
) -> None:
    source = source | {"start": start}
    scene.broker.topic("t", partitions=2)
    with scene.taking(source, OTHER):
        scene.wait_until(lambda: scene.beginnings.rows.get("in") == {"t": BegunTopic("t-2", 2)})
        scene.broker.produce("t", b"1", headers=TO_A)
        scene.wait_committed("t", 1)
    forgotten = scene.broker.committed.pop(("t", 0))  # the other partition was committed later
    scene.broker.produce("t", b"2", headers=TO_A)
    scene.broker.produce("u", b"other")
    with scene.taking(source, OTHER):
        reason = scene.wait_stopped("in")
        assert reason.startswith("t[0] had a committed offset")
        assert f"start ({start}) says: `{command('routes resume-source', 'in')}`" in reason
        scene.wait_committed("u", 1)
        assert ("t", 0) not in scene.broker.committed
        scene.stops.ask("in", skip=False)
        scene.wait_committed("t", 2)
    again = [b"1", b"2"] if start == "earliest" else []
    assert scene.bodies("a") == [b"1", b"other", *again]
    del scene.broker.committed["t", 0]
    with scene.taking(source, OTHER):
        scene.wait_stopped("in")
        scene.broker.committed["t", 0] = forgotten + 1  # an operator knows better
        scene.stops.ask("in", skip=False)
        scene.broker.produce("t", b"3", headers=TO_A)
        scene.wait_committed("t", 3)
    assert scene.bodies("a") == [b"1", b"other", *again, b"3"]


def test_topics_that_a_source_has_begun_are_known_as_long_as_there_is_the_source(scene: SourcesScene) -> None:
    with scene.taking(IN, OTHER):
        scene.wait_until(lambda: scene.beginnings.rows == {"in": {"t": T}, "other": {"u": U}})
        scene.broker.topic("t-2")
        scene.wait_until(lambda: scene.beginnings.rows["in"] == {"t": T, "t-2": BegunTopic("t-2-2", 1)})
    with scene.taking(OTHER):
        scene.wait_until(lambda: scene.beginnings.rows == {"other": {"u": U}})


def test_a_row_that_cannot_be_read_stops_its_source_alone_until_an_operator_has_it_go_on(scene: SourcesScene) -> None:
    scene.beginnings.rows["in"] = None
    scene.broker.produce("t", b"1")
    scene.broker.produce("u", b"2")
    with scene.taking(IN, OTHER):
        assert command("routes resume-source", "in") in scene.wait_stopped("in")
        scene.wait_committed("u", 1)
        assert scene.beginnings.rows["in"] is None
        scene.stops.ask("in", skip=False)
        scene.wait_committed("t", 1)
        scene.wait_until(lambda: scene.beginnings.rows == {"in": {"t": T}, "other": {"u": U}})


def test_a_record_of_a_topic_that_was_made_anew_since_is_not_skipped_in_the_new_one(scene: SourcesScene) -> None:
    scene.broker.produce("t", b"\xff", b"2")
    with scene.taking(IN | {"value": "text"}, list_every_s=1000):
        scene.wait_stopped("in")
        scene.broker.topic("t")
        scene.broker.produce("t", b"3")
        scene.stops.ask("in", skip=True)
        scene.wait_until(lambda: "made anew" in scene.source("in")["error"])
        assert scene.broker.committed["t", 0] == 0
        with pytest.raises(InvalidOperationError, match="no record has stopped"):
            scene.stops.ask("in", skip=True)


def test_offsets_that_are_committed_again_stay_those_of_their_topic(scene: SourcesScene) -> None:
    scene.broker.produce("t", b"\xff")
    with scene.taking(IN | {"value": "text"}, commit_again_s=0.0):
        scene.wait_stopped("in")
        old = scene.broker.topics["t"].topic_id
        scene.broker.topic("t")
        before = len(scene.broker.commits)
        scene.wait_until(lambda: len(scene.broker.commits) > before + 2)
    assert scene.broker.committed_ids["t", 0] == old


def test_positions_that_outlived_their_topic_are_named_with_the_command_that_deletes_them() -> None:
    positions = {("t", 0): Position(7, "old"), ("t", 1): Position(3, "new"), ("u", 0): Position(5, "")}
    with pytest.raises(InvalidOperationError, match=r"stand \(t\[0\]@7\), .* nothing was taken") as caught:
        require_none_outlived(positions, {"t": "new", "u": "any"}, group="g", bootstrap_servers="b:1")
    assert "kafka-consumer-groups --bootstrap-server b:1 --delete-offsets --group g --topic t" in str(caught.value)
    require_none_outlived({("t", 1): Position(3, "new")}, {"t": "new"}, group="g", bootstrap_servers="b:1")


def test_what_is_on_its_way_is_waited_for_when_nobody_tells_the_ids(scene: SourcesScene) -> None:
    scene.broker.mute = cycle([False, False, False, False, True])
    scene.broker.produce("t", *(b"%d" % number for number in range(60)))
    with scene.taking(IN, batch_records=10, list_every_s=1000):
        scene.wait_committed("t", 60)
    assert scene.bodies("a") == [b"%d" % number for number in range(60)]
