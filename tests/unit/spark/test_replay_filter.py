"""A replay is told from every other by what is selected, not by what of the source was repaired."""

from __future__ import annotations

from loaders.spark.replaying import Filter


def test_what_is_skipped_does_not_make_it_another_replay() -> None:
    asked = Filter(queues=("orders/eu",))
    skipping = Filter(queues=("orders/eu",), skip=((0, 1234),))
    assert skipping.digest(remapped=False) == asked.digest(remapped=False)
    assert asked.digest(remapped=True) != asked.digest(remapped=False) != Filter().digest(remapped=False)
    assert '"skip"' in skipping.to_json()
