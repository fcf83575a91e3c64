"""What routes send for a WAL is the same for every checkpoint interval, and whatever fails between."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from journal.v1.journal_pb2 import ADD, Operation
from tests.simulation.faults import Fault, Faults
from tests.support.build import commit, delete, marker, prepare, rollback, wal
from tests.support.route_replay import ReplayWorld
from tests.support.routes import DEAD, OUT, TOPIC, RoutesWorld, chunk, large, message

IDS = st.integers(1, 4)
TRANSACTIONS = st.sampled_from([0, 0, 0, 7, 8])
ROUTES = (
    {"name": "some", "address": "a.*", "filter": "k = 1", "targets": [{"topic": OUT}], "stop": True},
    {"name": "keyed", "targets": [{"topic": OUT, "key": "header:k", "key_format": "text"}], "on_error": "dead-letter"},
)

LIMITS = {"of-less": 1500, "of-default": 4000, "of-more": 6000}
"""What the topics of a template take; `record_bytes_max` is the second."""


@st.composite
def histories(draw: st.DrawFn) -> list[list[Operation]]:
    """Groups of operations: messages with and without a key, large ones, deletes, transactions. Some mean nothing."""
    number = 0
    staged = {7: 0, 8: 0}
    groups: list[list[Operation]] = [[marker()]]
    for _ in range(draw(st.integers(1, 8))):
        group: list[Operation] = []
        for _ in range(draw(st.integers(1, 4))):
            number += 1
            body, tx = b"%d" % number, draw(TRANSACTIONS)
            what = draw(st.sampled_from(["add", "add", "add", "large", "delete", "delete", "settle", "prepare"]))
            if what == "add":
                headers = draw(st.sampled_from([{}, {"k": 1}, {"k": 2}, {"k": "text"}]))
                made = [message(draw(IDS), body, draw(st.sampled_from(["a.b", "c"])), tx=tx, headers=headers)]
            elif what == "large":
                made = [chunk(100 + number, body, tx=tx), large(draw(IDS), [100 + number], len(body), tx=tx)]
            elif what == "delete":
                made = [delete(draw(IDS), tx=tx)]
            elif what == "prepare":
                made = [prepare(tx or 7, staged[tx or 7])]
            else:
                made = [draw(st.sampled_from([commit, commit, rollback]))(tx or 7, staged[tx or 7])]
                staged[tx or 7] = 0
            if made[0].tx and made[0].type <= 3:
                staged[tx] += len(made)
            group += made
        groups.append(group)
    return groups


class SometimesFails(Faults):
    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def at(self, request: str, node: str) -> Fault:
        return self._chance.choice(list(Fault)) if self._chance.random() < 0.02 else Fault.NONE


def sent(groups: list[list[Operation]], intervals: list[int], faults: Faults | None = None) -> tuple[object, object]:
    world = RoutesWorld(wal(*groups), *ROUTES, faults=faults, dead_letter_topic=DEAD)
    world.run(intervals)
    return world.records(OUT), world.records(DEAD)


@given(histories(), st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 2**32))
def test_what_is_sent_is_the_same_for_every_checkpoint_interval(
    groups: list[list[Operation]], intervals: list[int], seed: int
) -> None:
    expected = sent(groups, [1])
    assert sent(groups, intervals) == expected
    assert sent(groups, [len(groups)]) == expected
    assert sent(groups, intervals, SometimesFails(Random(seed))) == expected


@given(
    st.lists(st.tuples(st.sampled_from(["less", "default", "more"]), st.sampled_from([10, 3000, 5000, 7000]))),
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.sampled_from(["skip", "dead-letter"]),
    st.integers(0, 2**32),
)
def test_what_is_sent_to_the_topics_of_a_template_is_what_each_of_them_takes(
    given_: list[tuple[str, int]], intervals: list[int], on_error: str, seed: int
) -> None:
    groups = [[message(at, b"%d" % at * size, address)] for at, (address, size) in enumerate(given_, start=1)]
    topics = {name: {"max.message.bytes": str(limit)} for name, limit in LIMITS.items()}
    route = {"name": "made", "targets": [{"topic": "of-{address}"}], "on_error": on_error}

    def sent_to(faults: Faults | None = None) -> dict[str, list[bytes | None]]:
        world = RoutesWorld(
            wal([marker()], *groups),
            route,
            faults=faults,
            topics={DEAD: TOPIC, **topics},
            dead_letter_topic=DEAD,
            record_bytes_max=LIMITS["of-default"],
        )
        world.run(intervals)
        return {topic: world.sent(topic) for topic in (*LIMITS, DEAD)}

    expected: dict[str, list[bytes | None]] = {topic: [] for topic in (*LIMITS, DEAD)}
    for at, (address, size) in enumerate(given_, start=1):
        body, topic = b"%d" % at * size, f"of-{address}"
        if len(body) < LIMITS[topic]:
            expected[topic].append(body)
        elif on_error == "dead-letter":
            expected[DEAD].append(body)
    assert sent_to() == expected
    assert sent_to(SometimesFails(Random(seed))) == expected


@given(histories())
def test_without_transactions_and_with_every_add_allowed_each_message_is_sent_once(
    groups: list[list[Operation]],
) -> None:
    plain: list[list[Operation]] = [[marker()]]
    bodies: list[bytes] = []
    for number, group in enumerate(groups[1:]):
        kept = [op for op in group if op.type == ADD and not op.tx and op.kind != 0]
        made = [
            message(1000 * number + place + 1, b"%d" % op.id, "c", headers={"k": 2}) for place, op in enumerate(kept)
        ]
        bodies += [b"%d" % op.id for op in kept]
        plain.append([*made, *(delete(op.id) for op in made[::2])])
    out, dead = sent(plain, [3])
    assert ([value for _, value in out], dead) == (bodies, [])  # type: ignore[attr-defined]


@given(histories())
def test_a_replay_of_everything_sends_what_the_worker_sent(groups: list[list[Operation]]) -> None:
    world = ReplayWorld(wal(*groups), *ROUTES, dead_letter_topic=DEAD)
    worker = {topic: world.sent(topic) for topic in (OUT, DEAD)}
    replayed: list[bytes | None] = []
    for route in ("some", "keyed"):
        world.replay(route=route).run()
        of_route = world.replayed()[len(replayed) :]
        assert [value for value in worker[OUT] if value in of_route] == of_route, "in the order of the WAL"
        replayed += of_route
    assert (sorted(map(bytes, filter(None, replayed))), world.replayed(DEAD)) == (
        sorted(map(bytes, filter(None, worker[OUT]))),
        worker[DEAD],
    )
