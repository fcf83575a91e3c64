"""Names of topics, groups, transactional ids and directories, with and without a `topic_prefix`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from journal.config import Settings
from journal.topics import names
from journal.topics.required_topics import required_topics


def all_names(journal: str) -> list[str]:
    return [
        names.wal_topic(journal),
        names.table_topic(journal),
        names.control_topic(journal),
        names.memory_topic(journal, "alerts"),
        names.writer_id(journal),
        names.worker_id(journal, 3),
        names.agent_id(journal, "alerts", 3),
        names.replay_id(journal, "out", "d1"),
        names.app_id(journal, "service"),
        names.worker_group(journal),
        names.sources_group(journal),
        names.node_group(journal),
    ]


def settings_of(**given: object) -> Settings:
    return Settings.model_validate(given)


@pytest.mark.parametrize("prefix", ["team.", "Team-a.eu_", "a.b.c."])
def test_a_prefix_stands_before_every_name_and_changes_nothing_behind_it(prefix: str) -> None:
    journal = settings_of(topic_prefix=prefix, journal="orders-1").journal
    assert all_names(journal) == [prefix + name for name in all_names("orders-1")]


def test_without_a_prefix_the_full_name_is_the_journals() -> None:
    assert settings_of(journal="orders").journal == "orders"
    assert names.writer_id("orders") == "kafka-journal.orders.writer"


def test_a_full_name_is_not_prefixed_again() -> None:
    """A process gives its full name to the processes that it starts."""
    settings = settings_of(topic_prefix="team.", journal="orders")
    assert settings_of(**settings.model_dump()).journal == settings.journal == "team.orders"


def test_the_default_name_has_the_prefix_too() -> None:
    assert settings_of(topic_prefix="team.").journal == "team.journal"


@pytest.mark.parametrize("prefix", ["team", "team-", "te am.", "team/.", "é.", 50 * "x" + "."])
def test_a_prefix_that_kafka_does_not_take_or_that_does_not_end_is_refused(prefix: str) -> None:
    with pytest.raises(ValidationError, match=r"end in '\.' or '_'"):
        settings_of(topic_prefix=prefix)


@pytest.mark.parametrize("name", ["other.orders", "team.", "team.team.orders", "Orders", "", "a" * 101])
def test_the_name_behind_the_prefix_stays_narrow(name: str) -> None:
    with pytest.raises(ValidationError, match="topic_prefix says what stands before it"):
        settings_of(topic_prefix="team.", journal=name)


def test_journals_of_one_name_and_different_prefixes_have_different_directories(tmp_path: Path) -> None:
    made = [settings_of(topic_prefix=prefix, journal="orders", directory=tmp_path) for prefix in ("", "a.", "b.")]
    assert len({settings.journal_directory for settings in made}) == 3


def test_the_topics_that_init_makes_have_the_prefix() -> None:
    topics = required_topics(settings_of(topic_prefix="team.", journal="orders"), shards=1)
    assert [topic.name for topic in topics] == ["team.orders.wal", "team.orders.table", "team.orders.control"]
