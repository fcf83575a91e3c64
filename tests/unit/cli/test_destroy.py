"""`destroy` names what it leaves."""

from __future__ import annotations

from journal.cli.destroy import what_remains
from journal.config import Settings
from journal.topics.control_rows import ControlRows
from journal.upkeep.destroying import Destruction
from journal.v1.journal_pb2 import RoutesReport, SourceTopics

ROUTING = {
    "dead_letter_topic": "letters",
    "routes": [{"name": "r", "address": "#", "targets": [{"topic": "landed"}, {"topic": "late"}]}],
}


def test_topics_of_routes_and_sources_are_named() -> None:
    rows = ControlRows(source_topics={"s": SourceTopics(source="s", ids={"corrections": "id"})})
    remains = what_remains(Settings.model_validate({"routing": ROUTING}), Destruction((), (), rows))
    assert remains[:-1] == [
        "topic of a route: landed",
        "topic of a route: late",
        "topic of a route: letters",
        "topic of a source: corrections",
    ]
    assert "copies of nodes and workers elsewhere" in remains[-1]


def test_topics_of_routes_that_this_command_does_not_know_are_said_to_be_there() -> None:
    rows = ControlRows(routes={0: RoutesReport(shard=0)})
    assert what_remains(Settings(), Destruction((), (), rows))[0] == (
        "topic of a route: those in the routes' settings, which this command has not"
    )
