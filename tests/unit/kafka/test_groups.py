"""The metadata that are committed with offsets."""

from __future__ import annotations

import pytest

from journal.kafka.groups import metadata_of, topic_id_in


@pytest.mark.parametrize("topic_id", ["", "zGx0rC7QQ1SdJp2kqkR6AA"])
def test_the_id_of_a_topic_is_kept_with_its_offsets(topic_id: str) -> None:
    assert topic_id_in(metadata_of(topic_id)) == topic_id


@pytest.mark.parametrize("metadata", [None, "", "zGx0rC7QQ1SdJp2kqkR6AA", "set by hand"])
def test_metadata_of_other_tools_tell_no_topic_id(metadata: str | None) -> None:
    assert topic_id_in(metadata) == ""
