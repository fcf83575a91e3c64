"""The demo's topics: what goes out and comes in, and that the comparison sees what is wrong."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from journal.cli.flights.corrections import (
    PARTITIONS,
    Correction,
    Corrector,
    compare_corrections,
    corrections_of,
    corrections_topic,
)
from journal.cli.flights.data import flight_of
from journal.cli.flights.landed import compare_landings, expected_landings, landings_in, landings_of
from journal.cli.flights.plan import steps
from journal.cli.flights.routed import with_routing
from journal.cli.flights.settings_file import toml_of
from journal.config import Settings, load_settings
from journal.kafka.ports import LogRecord, Sent
from journal.routing.config import RoutingConfig
from journal.store.model import Message
from tests.support.flights import row

FLIGHTS = [
    flight_of(1, row(day=2, scheduled=600, minutes=100)),
    flight_of(2, row(day=2, scheduled=601, minutes=20)),
    flight_of(3, row(day=2, scheduled=602, delay=None)),
    flight_of(4, row(day=2, scheduled=603, minutes=None)),
    flight_of(5, row(day=2, scheduled=610, minutes=15)),
]


def records(*bodies: bytes) -> list[LogRecord]:
    return [LogRecord(0, offset, 0, b"landed.EWR", body) for offset, body in enumerate(bodies)]


def sent() -> list[bytes]:
    """What the steps send for Newark."""
    said = [landings_of(step.operations) for step in steps(FLIGHTS)]
    assert all(each.keys() <= {"EWR"} for each in said)
    return [each["EWR"] for each in said if each]


def test_each_hour_says_which_flights_have_landed_in_the_order_in_which_they_did() -> None:
    assert sent() == [b"2,EWR/UA,N14228\n5,EWR/UA,N14228", b"1,EWR/UA,N14228"]


def test_what_the_steps_send_is_what_the_flights_say() -> None:
    found = compare_landings("t", 2, expected_landings(FLIGHTS), landings_in(records(*sent())))
    assert (found.different, found.expected, found.found, found.twice) == (0, 3, 3, 0)


@pytest.mark.parametrize(
    ("bodies", "what", "twice"),
    [
        ([b"2,EWR/UA,N14228\n5,EWR/UA,N14228"], "1,EWR/UA,N14228 is missing", 0),
        ([b"2,EWR/UA,N14228\n5,EWR/UA,N14228", b"1,EWR/UA,N14228", b"1,EWR/UA,N14228"], "once more", 1),
        ([b"1,EWR/UA,N14228", b"2,EWR/UA,N14228\n5,EWR/UA,N14228"], "not in the order", 0),
    ],
)
def test_a_flight_that_is_missing_there_twice_or_out_of_order_is_named(
    bodies: list[bytes], what: str, twice: int
) -> None:
    found = compare_landings("t", 0, expected_landings(FLIGHTS), landings_in(records(*bodies)))
    assert (found.different, found.twice) == (1, twice)
    assert what in found.differences[0]


# ---- corrections -----------------------------------------------------------------------------------------------------

CORRECTIONS = [Correction(number % PARTITIONS, b"k", b"%d" % number) for number in range(7)]


def taken_in(*numbers: int) -> list[Message]:
    return [
        Message(
            "corrections",
            b"%d" % number,
            properties={"kafka.partition": number % PARTITIONS, "kafka.offset": number // PARTITIONS},
        )
        for number in numbers
    ]


def test_corrections_are_messages_once_and_in_their_partitions_order() -> None:
    for order in ((0, 1, 2, 3, 4, 5, 6), (2, 5, 0, 1, 4, 3, 6)):
        found = compare_corrections("t", CORRECTIONS, taken_in(*order))
        assert (found.different, found.expected, found.found, found.twice) == (0, 7, 7, 0)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4, 5, 6, 6), (3, 0, 1, 2, 4, 5, 6)])
def test_a_correction_that_is_missing_there_twice_or_out_of_order_is_a_difference(order: tuple[int, ...]) -> None:
    found = compare_corrections("t", CORRECTIONS, taken_in(*order))
    assert found.different
    assert found.twice == (order.count(6) == 2)


class Kept:
    """A producer that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[list[Sent]] = []

    def connect(self, topics: object, timeout_s: float) -> bool:
        return True

    def send(self, records: list[Sent], timeout_s: float) -> list[int]:
        self.sent.append(records)
        return [0] * len(records)

    def close(self) -> None: ...


def test_corrections_come_in_bursts_and_all_of_them_by_the_end() -> None:
    corrections = corrections_of(flight_of(line, row(day=line % 28 + 1)) for line in range(1, 5001))
    assert len(corrections) == 100
    producer = Kept()
    corrector = Corrector(corrections, "t", producer, 1.0)
    for done in range(0, 1001, 7):
        corrector.produce_until(done, 1000)
    corrector.produce_until(1000, 1000)
    assert [each[1:4] for records in producer.sent for each in records] == corrections
    assert 10 <= len(producer.sent) <= 20


# ---- settings --------------------------------------------------------------------------------------------------------


def test_every_process_has_the_users_routes_and_the_demos(tmp_path: Path) -> None:
    route = {"name": "mine", "address": "a.b", "filter": "x = 'ü'", "targets": [{"topic": "t", "key": ["none"]}]}
    routing = RoutingConfig.model_validate({"routes": [route]})
    settings = with_routing(Settings(journal="j", node="n", routing=routing, client_properties={"a.b": "1"}))
    path = tmp_path / "settings.toml"
    path.write_text(toml_of(settings), encoding="utf-8")
    assert [each["name"] for each in tomllib.loads(path.read_text(encoding="utf-8"))["routing"]["routes"]] == [
        "mine",
        "landed",
    ]
    loaded = load_settings(path, node="n")
    assert loaded.model_dump() == settings.model_dump()
    assert loaded.routing.sources[0].topics == (corrections_topic("j"),)
