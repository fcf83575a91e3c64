"""The sources' loop: what is too much, what is quiet, and what appears later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pytest

from journal.kafka.ports import Sent
from journal.limits import Limits
from journal.store.model import QueueConfig, Routing
from tests.unit.sources.scene import SourcesScene

SMALL = Limits(queue_operations_max=60, transaction_buffer_operations_max=10)
IN = {"name": "in", "topics": ["t"], "address": "a"}


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SourcesScene]:
    made = SourcesScene(tmp_path, limits=SMALL)
    made.broker.topic("t")
    yield made
    made.close()


def fan(count: int) -> list[QueueConfig]:
    """Queues that all get every message."""
    return [QueueConfig(f"q{number}", "a", routing=Routing.MULTICAST) for number in range(count)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


# ---- more than the journal takes at once -----------------------------------------------------------------------------


def test_a_batch_of_more_operations_than_the_journal_takes_is_taken_in_by_parts(scene: SourcesScene) -> None:
    scene.declare(*fan(5))
    scene.broker.produce("t", *numbers(200))
    with scene.taking(IN):
        scene.wait_committed("t", 200)
    assert [scene.bodies(f"q{number}") for number in range(5)] == [numbers(200)] * 5
    assert max(after["t", 0] - before["t", 0] for before, after in consecutive(scene)) == 10


def test_a_batch_that_fails_without_a_reason_is_tried_smaller_until_one_is_taken(scene: SourcesScene) -> None:
    """A quota, or a slow cluster, takes no large batch in the time of a request."""
    scene.declare(*fan(1))
    scene.broker.produce("t", *numbers(50))
    failed: list[int] = []

    def slow(offsets: Mapping[tuple[str, int], int], beside: object) -> str:
        size = offsets["t", 0] - scene.broker.committed.get(("t", 0), 0)
        failed.extend([size] if size > 8 else [])
        return "it takes too long" if size > 8 else ""

    scene.broker.refuses = slow
    with scene.taking(IN):
        scene.wait_committed("t", 50)
    assert scene.bodies("q0") == numbers(50)
    assert failed[0] == 50
    assert len(failed) < 5


def test_a_body_is_taken_as_large_as_a_group_and_a_larger_one_names_the_setting(tmp_path: Path) -> None:
    mib = 1024 * 1024
    scene = SourcesScene(tmp_path, limits=Limits(queue_bytes_max=2 * mib, transaction_buffer_bytes_max=mib))
    try:
        scene.broker.topic("t")
        scene.declare(*fan(1))
        scene.broker.produce("t", b"1", b"x" * (2 * mib - 10_000), b"2", b"x" * (2 * mib))
        with scene.taking(IN):
            why = scene.wait_stopped("in")
        assert [len(body) for body in scene.bodies("q0")] == [1, 2 * mib - 10_000, 1]
        assert "t[0]@3: operations of one group take up to" in why
        assert f"over the limit of {2 * mib} (queue_bytes_max) (too-large)" in why
    finally:
        scene.close()


def consecutive(scene: SourcesScene) -> list[tuple[dict[tuple[str, int], int], dict[tuple[str, int], int]]]:
    """Committed offsets before and after each batch. Unchanged offsets are committed again now and then."""
    commits = [offsets for offsets, _ in groupby(scene.broker.commits)]
    return list(pairwise(commits))


def test_latency_is_told_of_what_is_committed(scene: SourcesScene) -> None:
    scene.declare(*fan(1))
    scene.broker.produce("t", b"old", b"new", timestamp=int(scene.now_ms) - 500)
    with scene.taking(IN):
        scene.wait_until(lambda: scene.source("in")["records"] == 2)
        scene.wait_until(lambda: scene.source("in")["latency_ms"] == 500)


def test_batches_grow_again_after_one_that_was_too_much(scene: SourcesScene) -> None:
    scene.declare(QueueConfig("one", "one"), *fan(59))
    scene.broker.produce("t", *numbers(2), headers=[("to", b"a")])
    scene.broker.produce("t", *numbers(300), headers=[("to", b"one")])
    with scene.taking(IN | {"address": "{to}"}, batch_records=20):
        scene.wait_committed("t", 302)
    sizes = [after["t", 0] - before["t", 0] for before, after in consecutive(scene)]
    assert sizes[:2] == [1, 1]
    assert max(sizes) == 20


def test_one_record_alone_that_is_too_much_goes_by_its_sources_policy(scene: SourcesScene) -> None:
    scene.declare(*fan(60))
    scene.broker.produce("t", *numbers(3))
    with scene.taking(IN):
        why = scene.wait_stopped("in")
    assert why.startswith("t[0]@0: ")
    assert "(too-large)" in why
    with scene.taking(IN | {"on_error": "skip"}):
        scene.wait_committed("t", 3)
        scene.wait_until(lambda: scene.source("in")["refused"] == {"too-large": 3})


# ---- dead letters ----------------------------------------------------------------------------------------------------

LETTERS = {"name": "in", "topics": ["t"], "address": "a", "value": "text", "on_error": "dead-letter"}
DEAD: dict[str, Any] = {"dead_letter_topic": "dead"}


def bad(size: int) -> bytes:
    """No text."""
    return b"\xff" * size


@pytest.fixture
def dead(tmp_path: Path) -> Iterator[SourcesScene]:
    made = SourcesScene(tmp_path)
    made.broker.topic("t")
    made.declare(QueueConfig("a", "a"))
    yield made
    made.close()


def test_a_dead_letter_is_as_large_as_its_topic_and_the_journals_writer_take(dead: SourcesScene) -> None:
    dead.broker.topic("dead", config={"max.message.bytes": "20000000"})
    dead.broker.topic("small", config={"max.message.bytes": "5000"})
    most = dead.limits.row_message_bytes_max
    dead.broker.produce("t", bad(950_000), bad(most - 2000), b"fine")
    with dead.taking(LETTERS, **DEAD):
        dead.wait_committed("t", 3)
    assert [len(letter.value or b"") for letter in dead.broker.letters] == [0, most - 2000]
    dead.broker.produce("t", bad(4000), bad(5000))
    with dead.taking(LETTERS, dead_letter_topic="small"):
        dead.wait_committed("t", 5)
    assert [len(letter.value or b"") for letter in dead.broker.letters[2:]] == [4000, 0]


def test_dead_letters_of_one_batch_are_no_larger_together_than_their_topic_takes(dead: SourcesScene) -> None:
    dead.broker.topic("dead", config={"max.message.bytes": "5000"})
    dead.broker.produce("t", *[bad(1000)] * 20)
    sent: list[int] = []

    def measured(offsets: object, beside: Sequence[Sent]) -> str:
        sent.append(sum(len(letter.value or b"") for letter in beside))
        return ""

    dead.broker.refuses = measured
    with dead.taking(LETTERS, **DEAD):
        dead.wait_committed("t", 20)
    assert sum(sent) == 20_000
    assert 1000 < max(sent) < 5000


def test_a_dead_letter_that_does_not_fit_whatever_is_left_out_stops_its_source_at_its_place(dead: SourcesScene) -> None:
    dead.broker.topic("dead", config={"max.message.bytes": "300"})
    dead.broker.topic("u")
    dead.broker.produce("t", b"fine", bad(1))
    dead.broker.produce("u", b"other")
    with dead.taking(LETTERS, {"name": "other", "topics": ["u"], "address": "a"}, **DEAD):
        why = dead.wait_stopped("in")
        assert why.startswith("t[0]@1: ")
        assert "dead-letter topic dead 300" in why
        dead.wait_committed("u", 1)
        assert dead.stops.ask("in", skip=True).skip == ("t", 0, 1)
        dead.wait_committed("t", 2)


def test_a_dead_letter_without_a_key_for_a_compacted_topic_stops_its_source_at_its_place(dead: SourcesScene) -> None:
    dead.broker.topic("dead", config={"cleanup.policy": "compact"})
    dead.broker.produce("t", bad(1), bad(2))
    dead.broker.produce("t", bad(3), key=None)
    with dead.taking(LETTERS, **DEAD):
        assert "dead is compacted" in dead.wait_stopped("in")
    assert dead.broker.committed["t", 0] == 2


def test_a_dead_letter_that_kafka_refuses_among_others_stops_its_source_at_its_place(dead: SourcesScene) -> None:
    dead.broker.topic("dead")
    dead.broker.topic("u")
    dead.broker.produce("t", *[bad(1)] * 5, bad(7), *[bad(1)] * 5)
    dead.broker.refuses = lambda offsets, beside: "dead" if bad(7) in [letter.value for letter in beside] else ""
    with dead.taking(LETTERS, {"name": "other", "topics": ["u"], "address": "a"}, **DEAD):
        why = dead.wait_stopped("in")
        assert why.startswith("t[0]@5: ")
        assert why.endswith("(not-text): Kafka refuses its dead letter for topic dead")
        dead.broker.produce("u", b"other")
        dead.wait_committed("u", 1)
        assert dead.broker.committed["t", 0] == 5
        dead.stops.ask("in", skip=True)
        dead.wait_committed("t", 11)
    assert len(dead.broker.letters) == 10
    assert len(dead.broker.commits) < 5 + 8


def test_a_batch_that_kafka_refuses_for_another_reason_is_tried_again(dead: SourcesScene) -> None:
    dead.broker.topic("dead")
    dead.broker.produce("t", bad(1))
    answers = ["", "something else", "something else", ""]
    dead.broker.refuses = lambda offsets, beside: answers.pop(0) if answers else ""
    with dead.taking(LETTERS, **DEAD):
        dead.wait_committed("t", 1)
        assert dead.source("in")["error"] == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"may_write": False}, "--operation Write --topic dead"),
        ({"replication": 0}, "0 replicas, and the journal's own 1"),
        ({"insync": "0"}, "min.insync.replicas=0, and the journal 1"),
        ({"insync": "2"}, "min.insync.replicas=2: it takes no records"),
        ({"before_ms": "0"}, "message.timestamp.before.max.ms=0: it may refuse the end of a transaction"),
    ],
)
def test_a_dead_letter_topic_that_takes_nothing_or_could_lose_it_stops_those_that_need_it(
    dead: SourcesScene, change: Mapping[str, object], says: str
) -> None:
    config = {"message.timestamp.before.max.ms": str(change.get("before_ms", 10**9))}
    topic = dead.broker.topic("dead", config={"min.insync.replicas": str(change.get("insync", 1)), **config})
    topic.may_write = bool(change.get("may_write", True))
    topic.replication = int(str(change.get("replication", 1)))
    dead.broker.topic("u")
    dead.broker.produce("t", b"fine")
    dead.broker.produce("u", b"other")
    with dead.taking(LETTERS, {"name": "other", "topics": ["u"], "address": "a", "value": "text"}, **DEAD):
        assert says in dead.wait_stopped("in")
        dead.wait_committed("u", 1)
        assert ("t", 0) not in dead.broker.committed
        topic.may_write, topic.replication = True, 1
        topic.config |= {"min.insync.replicas": "1", "message.timestamp.before.max.ms": "60000"}
        dead.wait_committed("t", 1)


# ---- headers that cannot be read -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["body", "text"])
def test_a_record_whose_headers_cannot_be_read_stops_its_source_at_its_place(dead: SourcesScene, value: str) -> None:
    dead.broker.topic("u")
    dead.broker.produce("t", b"0")
    dead.broker.produce("t", b"1", headers=None)
    dead.broker.produce("t", b"2")
    with dead.taking(IN | {"value": value}, {"name": "other", "topics": ["u"], "address": "a"}):
        why = dead.wait_stopped("in")
        assert why.startswith("t[0]@1: ")
        assert "(bad-header)" in why
        dead.broker.produce("u", b"other")
        dead.wait_committed("u", 1)
        dead.stops.ask("in", skip=True)
        dead.wait_committed("t", 3)
    dead.wait_until(lambda: dead.bodies("a") == [b"0", b"other", b"2"])


def test_a_record_whose_headers_cannot_be_read_is_a_dead_letter_without_them(dead: SourcesScene) -> None:
    dead.broker.topic("dead")
    dead.broker.produce("t", b"0", headers=None)
    with dead.taking(LETTERS, **DEAD):
        dead.wait_committed("t", 1)
    (letter,) = dead.broker.letters
    assert (letter.key, letter.value, dead.reasons()) == (b"k", b"0", [b"bad-header"])
    assert all(name.startswith("kafka-journal.error.") for name, _ in letter.headers)


# ---- operators -------------------------------------------------------------------------------------------------------


def test_a_resumption_and_a_skip_asked_for_at_once_take_no_record_in_twice(dead: SourcesScene) -> None:
    dead.broker.topic("u")
    dead.broker.produce("t", *numbers(4))
    asked: list[object] = []

    def meanwhile(offsets: Mapping[tuple[str, int], int], beside: object) -> str:
        """The loop is busy with another source's batch."""
        if offsets.get(("u", 0)) and not asked:
            asked.extend(dead.stops.ask("in", skip=skip) for skip in (False, True))
        return ""

    dead.broker.refuses = meanwhile
    with dead.taking(IN | {"address": "late"}, {"name": "other", "topics": ["u"], "address": "a"}):
        dead.wait_stopped("in")
        dead.declare(QueueConfig("late", "late"))
        dead.broker.produce("u", b"other")
        dead.wait_committed("t", 4)
        dead.look_again()
    assert len(asked) == 2
    assert dead.bodies("late") == numbers(4)
    ends = [offsets["t", 0] for offsets in dead.broker.commits if ("t", 0) in offsets]
    assert ends == sorted(ends)


def test_a_skip_never_goes_back_behind_what_is_committed_by_then(dead: SourcesScene) -> None:
    dead.broker.produce("t", bad(1), *numbers(3))
    with dead.taking(IN | {"value": "text"}, list_every_s=1000):
        dead.wait_stopped("in")
        dead.broker.committed["t", 0] = 3
        dead.stops.ask("in", skip=True)
        dead.wait_committed("t", 4)
    assert dead.bodies("a") == [b"2"]


# ---- requests --------------------------------------------------------------------------------------------------------

REPLIES = {"name": "re", "topics": ["t"], "replies": True, "requests": "ask", "reply_timeout_ms": 60_000}
LATE_MS = 60_001


@pytest.fixture
def asking(dead: SourcesScene) -> SourcesScene:
    dead.broker.topic("dead")
    dead.declare(QueueConfig("ask", "ask"))
    return dead


def reply(scene: SourcesScene, body: bytes, request: int) -> None:
    scene.broker.produce("t", body, headers=[("jms.string.JMSCorrelationID", b"%d" % request)])


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_a_request_without_a_reply_is_a_dead_letter_whatever_else_the_policy_is(
    asking: SourcesScene, policy: str
) -> None:
    asking.send("ask", b"?", JMSReplyTo="a")
    asking.now_ms += LATE_MS
    with asking.taking(REPLIES | {"on_error": policy}, **DEAD):
        asking.wait_until(lambda: asking.broker.letters)
        asking.wait_until(lambda: asking.bodies("ask") == [])
    assert [letter.value for letter in asking.broker.letters] == [b"?"]
    assert asking.reasons() == [b"no-reply"]
    assert asking.source("re")["refused"] == {"no-reply": 1}


@pytest.mark.parametrize(("policy", "letters"), [("fail", 1), ("skip", 0), ("dead-letter", 1)])
def test_a_reply_that_comes_too_late_stops_nothing(asking: SourcesScene, policy: str, letters: int) -> None:
    reply(asking, b"late", 77)
    with asking.taking(REPLIES | {"on_error": policy}, **DEAD):
        asking.wait_committed("t", 1)
    assert asking.reasons() == [b"no-request"] * letters


def test_requests_of_a_stopped_source_are_not_given_up(asking: SourcesScene) -> None:
    asked = asking.send("ask", b"?", JMSReplyTo="a")
    asking.broker.produce("t", bad(1), headers=[("jms.string.JMSDestination", b"a")])
    reply(asking, b"!", asked)
    with asking.taking(REPLIES | {"value": "text"}, **DEAD):
        asking.wait_stopped("re")
        asking.wait_until(lambda: {("t", 0): 0} in asking.broker.commits)  # once more, although it is stopped
        asking.now_ms += LATE_MS
        asking.look_again()
        assert asking.bodies("ask") == [b"?"]
        asking.stops.ask("re", skip=True)
        asking.wait_committed("t", 2)
        asking.wait_until(lambda: asking.bodies("a") == [b"!"])
    assert asking.broker.letters == []


def test_requests_are_given_up_only_once_all_replies_of_before_are_consumed(asking: SourcesScene) -> None:
    answered, unanswered = (asking.send("ask", body, JMSReplyTo="a") for body in (b"1?", b"2?"))
    asking.broker.topics["t"].partitions.append([])
    asking.broker.topics["t"].hidden = 3
    asking.broker.silent.add(("t", 0))
    reply(asking, b"1!", answered)
    asking.now_ms += LATE_MS
    with asking.taking(REPLIES, **DEAD):
        asking.wait_committed("t", 0, 1)
        asking.look_again()
        assert asking.bodies("ask") == [b"1?", b"2?"]
        asking.broker.silent.clear()
        asking.wait_until(lambda: asking.bodies("ask") == [])
    assert [letter.value for letter in asking.broker.letters] == [b"2?"]
    assert asking.bodies("a") == [b"1!"]
    assert unanswered


def test_a_request_whose_dead_letter_does_not_fit_stops_its_source(asking: SourcesScene) -> None:
    asking.broker.topics["dead"].config["max.message.bytes"] = "300"
    asked = asking.send("ask", b"?", JMSReplyTo="a")
    asking.now_ms += LATE_MS
    with asking.taking(REPLIES, **DEAD):
        assert asking.wait_stopped("re").startswith(f"request {asked}: its dead letter")
    assert asking.bodies("ask") == [b"?"]


# ---- quiet partitions ------------------------------------------------------------------------------------------------


def test_offsets_that_do_not_change_are_committed_again_those_of_stopped_sources_too(dead: SourcesScene) -> None:
    dead.broker.topic("u")
    dead.broker.topic("gone")
    dead.broker.committed |= {("t", 0): 0, ("u", 0): 0, ("gone", 0): 7, ("other", 0): 9}
    dead.broker.produce("u", bad(1))
    del dead.broker.topics["gone"]
    sources = [IN, {"name": "stops", "topics": ["u"], "address": "a", "value": "text"}]
    with dead.taking(*sources, commit_again_s=0.1):
        dead.wait_stopped("stops")
        dead.broker.commits.clear()
        dead.wait_until(lambda: len(dead.broker.commits) >= 6)
    assert {("t", 0): 0} in dead.broker.commits
    assert {("u", 0): 0} in dead.broker.commits
    assert all(topic in ("t", "u") for each in dead.broker.commits for topic, _ in each)


def test_an_activation_commits_unchanged_offsets_again_soon_and_then_seldom(dead: SourcesScene) -> None:
    dead.broker.committed |= {("t", 0): 0}
    with dead.taking(IN):
        dead.wait_until(lambda: {("t", 0): 0} in dead.broker.commits)
        dead.look_again()
        assert dead.broker.commits.count({("t", 0): 0}) == 1


def test_a_source_whose_offsets_cannot_be_committed_again_holds_up_nothing(dead: SourcesScene) -> None:
    dead.broker.topic("u")
    dead.broker.committed |= {("t", 0): 0, ("u", 0): 0}
    dead.broker.refuses = lambda offsets, beside: "no" if offsets == {("t", 0): 0} else ""
    with dead.taking(IN, {"name": "other", "topics": ["u"], "address": "a"}):
        dead.wait_until(lambda: {("u", 0): 0} in dead.broker.commits)
        dead.broker.produce("t", b"more")
        dead.wait_committed("t", 1)
        assert dead.status.as_json()["error"] == ""


# ---- what appears later ----------------------------------------------------------------------------------------------


def test_a_source_that_starts_at_the_end_takes_all_of_what_appears_later(dead: SourcesScene) -> None:
    dead.broker.produce("t", b"before")
    later = {"name": "in", "pattern": "t.*", "address": "a", "start": "latest"}
    with dead.taking(later):
        dead.wait_committed("t", 1)
        dead.broker.topics["t"].partitions.append([])
        dead.broker.produce("t", b"a new partition", partition=1)
        dead.wait_committed("t", 1, 1)
    dead.broker.topic("t-2")
    dead.broker.produce("t-2", b"a new topic")
    with dead.taking(later):
        dead.wait_committed("t-2", 1)
    dead.wait_until(lambda: dead.bodies("a") == [b"a new partition", b"a new topic"])


def test_what_is_found_by_a_source_that_had_no_topic_yet_is_taken_from_its_beginning(dead: SourcesScene) -> None:
    with dead.taking({"name": "in", "pattern": "p.*", "address": "a", "start": "latest"}):
        dead.wait_until(lambda: dead.broker.assigned)
        dead.broker.topic("p")
        dead.broker.produce("p", b"first")
        dead.wait_until(lambda: dead.broker.committed.get(("p", 0), 0) == 1)
    dead.wait_until(lambda: dead.bodies("a") == [b"first"])
