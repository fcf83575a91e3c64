"""Settings of addresses by pattern: the most specific one counts, and what is set while the store runs is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from pydantic import ValidationError

from journal.errors import InvalidOperationError, RowError
from journal.store.address_settings import AddressSettings, KeptSettings, SettingsByPattern, ToldSetting, specificity
from journal.store.chain.realigning import realign
from journal.store.records import decode_address_settings, encode_address_settings
from journal.store.settings import StoreSettings
from journal.store.store import MessageStore
from journal.v1.store_pb2 import ADDRESS_SETTINGS
from tests.support.stores import StoreNode, declare, kinds_in_journal, refuse, send

TWICE = AddressSettings(deliveries_max=2)


@pytest.mark.parametrize(
    "ordered",
    [
        ["orders.eu", "orders.*", "orders.#", "#"],
        ["a.b", "a.b.#", "a.*", "a.#.b", "a.#", "*.b", "*.#", "#.b", "#"],
    ],
)
def test_the_most_specific_pattern_comes_first(ordered: list[str]) -> None:
    shuffled = Random(1).sample(ordered, len(ordered))
    assert sorted(shuffled, key=specificity) == ordered


def test_each_setting_comes_from_the_most_specific_pattern_that_sets_it() -> None:
    merged = SettingsByPattern(
        {
            "#": AddressSettings(deliveries_max=10, dead_letter_address="dead"),
            "orders.#": AddressSettings(deliveries_max=5),
            "orders.eu": AddressSettings(expiry_address="late"),
            "payments": AddressSettings(deliveries_max=1),
        }
    )
    assert merged.of("orders.eu").named == {
        "deliveries_max": 5,
        "dead_letter_address": "dead",
        "expiry_address": "late",
    }
    assert merged.of("news").named == {"deliveries_max": 10, "dead_letter_address": "dead"}
    assert merged.told("orders.us")["deliveries_max"] == ToldSetting(5, "orders.#", False)
    assert merged.told("orders.us")["expiry_address"] == ToldSetting("", "", False)


def test_what_is_set_at_run_time_wins_for_the_same_pattern_alone() -> None:
    merged = SettingsByPattern({"#": TWICE, "orders.#": AddressSettings(deliveries_max=5, expiry_address="late")})
    assert merged.of("orders").deliveries_max == 5
    merged.keep(1, "#", AddressSettings(deliveries_max=9))
    merged.keep(2, "orders.#", AddressSettings(deliveries_max=0))
    assert (merged.of("orders").deliveries_max, merged.of("orders").expiry_address) == (0, "late")
    assert merged.told("orders")["deliveries_max"] == ToldSetting(0, "orders.#", True)
    assert merged.of("news").deliveries_max == 9
    merged.forget("orders.#")
    assert merged.of("orders").deliveries_max == 5


@pytest.mark.parametrize("reactivate", [StoreNode.restart, StoreNode.crash], ids=["restart", "crash"])
def test_what_is_set_at_run_time_is_there_after_a_failover(
    node: StoreNode, store: MessageStore, reactivate: Callable[[StoreNode], MessageStore]
) -> None:
    store.set_address_settings("#", AddressSettings(expiry_address="late"))
    store.set_address_settings("orders.#", AddressSettings(deliveries_max=5))
    store.set_address_settings("orders.#", TWICE).wait()
    assert kinds_in_journal(node)[ADDRESS_SETTINGS] == 2
    kept = [KeptSettings("orders.#", TWICE), KeptSettings("#", AddressSettings(expiry_address="late"))]
    for _ in range(2):
        assert node.store.address_settings() == kept
        assert node.store.settings_of("orders.eu")["deliveries_max"] == ToldSetting(2, "orders.#", True)
        reactivate(node)
    node.store.unset_address_settings("orders.#").wait()
    assert reactivate(node).settings_of("orders")["deliveries_max"] == ToldSetting(0, "", False)
    assert kinds_in_journal(node)[ADDRESS_SETTINGS] == 1


def test_what_is_no_pattern_or_was_never_set_is_refused(node: StoreNode, store: MessageStore) -> None:
    refuse(
        InvalidOperationError,
        lambda: store.set_address_settings("", TWICE),
        lambda: store.set_address_settings("orders*", TWICE),
        lambda: store.unset_address_settings("orders.#"),
    )
    assert (store.address_settings(), kinds_in_journal(node)[ADDRESS_SETTINGS]) == ([], 0)
    with pytest.raises(ValidationError, match="whole words"):
        StoreSettings(address_settings={"orders*": TWICE})


def test_a_queue_that_says_nothing_has_the_addresses_of_its_address(store: MessageStore) -> None:
    declare(store, "late", address="late")
    declare(store, "dead", address="dead")
    store.set_address_settings("#", AddressSettings(expiry_address="late", dead_letter_address="dead"))
    sent = [send(store, b"one", "q"), send(store, b"two", "q")]
    assert store.expire(sent[0], "q").queues == ("late",)
    assert store.dead_letter(sent[1], "q").queues == ("dead",)


def test_the_bytes_of_a_pattern_s_record_stay_the_same() -> None:
    settings = AddressSettings(deliveries_max=0, dead_letter_address="dead")
    frozen = bytes.fromhex("0a086f72646572732e2310001a0464656164")
    assert encode_address_settings("orders.#", settings) == frozen
    found = decode_address_settings(frozen)
    assert (found.pattern, found.settings.named) == ("orders.#", {"deliveries_max": 0, "dead_letter_address": "dead"})
    with pytest.raises(RowError, match="'orders\\*'"):
        decode_address_settings(encode_address_settings("orders*", settings))


def test_stores_of_a_chain_have_the_same_settings_after_a_realignment(tmp_path: Path) -> None:
    with StoreNode(tmp_path / "1") as first, StoreNode(tmp_path / "2") as second:
        first.store.set_address_settings("a", TWICE).wait()
        for pattern, limit in (("a", 3), ("b", 4)):
            second.store.set_address_settings(pattern, AddressSettings(deliveries_max=limit)).wait()
        (done,) = realign([first.store, second.store])
        assert (second.store.address_settings(), done.declared) == (first.store.address_settings(), 2)
