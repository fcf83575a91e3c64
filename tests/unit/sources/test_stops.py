"""Sources that are stopped, and operators who have them go on."""

from __future__ import annotations

import pytest

from journal.errors import InvalidOperationError
from journal.sources.stops import RecordPlace, Stops

PLACE = RecordPlace("t", 2, 41)


def test_a_stopped_source_goes_on_once_it_is_granted() -> None:
    stops = Stops()
    stops.add({"in": f"{PLACE}: no text"}, {"in": PLACE})
    assert stops.reasons() == {"in": "t[2]@41: no text"}
    asked = stops.ask("in", skip=True)
    assert asked.skip == PLACE
    assert stops.ask("in", skip=True) == asked
    assert stops.asked() == asked
    assert stops.reasons() != {}
    stops.granted(asked)
    assert (stops.reasons(), stops.asked()) == ({}, None)


def test_what_is_asked_for_a_source_is_void_once_another_wish_for_it_is_granted() -> None:
    stops = Stops()
    stops.add({"in": "no text", "other": "gone"}, {"in": PLACE})
    resumed, skipped, others = stops.ask("in", skip=False), stops.ask("in", skip=True), stops.ask("other", skip=False)
    assert stops.asked() == resumed
    assert stops.granted(resumed) == [skipped]
    assert stops.asked() == others
    assert stops.granted(others) == []
    stops.add({"in": "no text"}, {"in": PLACE})
    assert stops.asked() is None


def test_a_skip_of_a_record_that_is_not_what_stops_the_source_now_is_not_done() -> None:
    stops = Stops()
    stops.add({"in": "no text"}, {"in": PLACE})
    stops.ask("in", skip=True)
    stops.add({"in": "no text"}, {"in": PLACE._replace(offset=43)})
    assert stops.asked() is None
    assert stops.ask("in", skip=True) == stops.asked()


def test_a_source_goes_on_only_if_it_is_stopped_and_skips_only_a_record_that_stopped_it() -> None:
    stops = Stops()
    stops.add({"gone": "topic t is gone"}, {})
    with pytest.raises(InvalidOperationError, match="not stopped"):
        stops.ask("in", skip=False)
    with pytest.raises(InvalidOperationError, match="topic t is gone"):
        stops.ask("gone", skip=True)
    assert stops.ask("gone", skip=False).skip is None
