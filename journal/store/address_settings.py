"""Settings of addresses by pattern, as `orders.#`: which there are, and how entries of several patterns are merged.

A pattern's entry comes from the store's settings (`store.address_settings`), or was set while the store ran and is in
the journal. Each entry sets some of the settings. For an address and one setting, the entry with the most specific
pattern that sets it counts; for the same pattern, what was set while the store ran wins.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from journal.patterns import ANY, ONE, matches, parse_pattern
from journal.process.kept import Kept
from journal.store.model import DELIVERIES_MAX

_LITERAL_RANK, _ONE_RANK, _END_RANK, _ANY_RANK = range(4)
"""Ranks of a pattern's words: the lower, the fewer addresses match. A pattern that ends is narrower than one that goes
on with `#`, and wider than one that goes on with another word."""


class AddressSettings(BaseModel):
    """The settings of addresses that match a pattern. An entry sets those that it names. A queue's own value wins."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deliveries_max: int = Field(default=0, ge=0, le=DELIVERIES_MAX)
    """The number of deliveries after which a message is dead; 0 for no limit."""

    dead_letter_address: str = ""
    """Where dead messages go. It is made if it is missing, with a queue of its name. Without it they go to an address
    that is made of `dead_letter_prefix` and their own address."""

    dead_letter_prefix: str = Field(default="DLQ.", min_length=1)
    """The beginning of the address that is made for dead messages."""

    drop_dead_letters: bool = False
    """Whether dead messages are deleted where no `dead_letter_address` is set."""

    expiry_address: str = ""
    """Where expired messages go. It is made if it is missing. Without it they are deleted."""

    @property
    def named(self) -> dict[str, str | int | bool]:
        """The settings that this entry sets."""
        return self.model_dump(exclude_unset=True)


_SETTINGS_BYTES = 1024
"""The bytes that the merged settings of one address take, about."""


class KeptSettings(NamedTuple):
    """An entry in the journal."""

    pattern: str
    settings: AddressSettings


class ToldSetting(NamedTuple):
    """The value of one setting for an address, and where it comes from."""

    value: str | int | bool
    pattern: str
    """The pattern whose entry sets it; empty for a default."""
    kept: bool
    """Whether it was set while the store ran, and is in the journal."""


class SettingsByPattern:
    """All entries, and their values for an address. The store's lock guards it."""

    def __init__(self, configured: Mapping[str, AddressSettings]) -> None:
        """`configured` are the entries of the store's settings."""
        self._configured = dict(configured)
        self._kept: dict[str, tuple[int, AddressSettings]] = {}
        """Entries in the journal by their patterns, with their record ids."""
        self._of: Kept[str, AddressSettings] = Kept(entry_bytes_max=_SETTINGS_BYTES + 2048)
        """The merged settings of addresses that were asked for last."""

    def keep(self, record_id: int, pattern: str, settings: AddressSettings) -> None:
        """Note the journal's entry for a pattern, in place of an earlier one."""
        self._kept[pattern] = record_id, settings
        self._of.clear()

    def forget(self, pattern: str) -> None:
        """Note that the journal has no entry for a pattern any more."""
        del self._kept[pattern]
        self._of.clear()

    def record_of(self, pattern: str) -> int:
        """The record id of the journal's entry for a pattern; 0 if there is none."""
        return self._kept[pattern][0] if pattern in self._kept else 0

    def kept(self) -> list[KeptSettings]:
        """The journal's entries, the most specific pattern first."""
        found = [KeptSettings(pattern, settings) for pattern, (_, settings) in self._kept.items()]
        return sorted(found, key=lambda each: specificity(each.pattern))

    def of(self, address: str) -> AddressSettings:
        """The settings of an address."""
        found = self._of.get(address)
        if found is None:
            named = {name: told.value for name, told in self.told(address).items() if told.pattern}
            found = self._of.keep(address, AddressSettings.model_validate(named), len(address) + _SETTINGS_BYTES)
        return found

    def told(self, address: str) -> dict[str, ToldSetting]:
        """The value of every setting for an address, with its source."""
        found = {name: ToldSetting(field.default, "", False) for name, field in AddressSettings.model_fields.items()}
        entries = [(pattern, False, settings) for pattern, settings in self._configured.items()]
        entries += [(pattern, True, settings) for pattern, (_, settings) in self._kept.items()]
        entries = [entry for entry in entries if matches(parse_pattern(entry[0]), address)]
        # from the least to the most specific one, so that the last value stays
        for pattern, kept, settings in sorted(entries, key=_rank, reverse=True):
            found |= {name: ToldSetting(value, pattern, kept) for name, value in settings.named.items()}
        return found


def specificity(pattern: str) -> tuple[tuple[int, ...], str]:
    """A key that sorts patterns by how few addresses they match, the most specific first. Words are compared from the
    left: a word, then `*`, then `#`."""
    ranks = {ONE: _ONE_RANK, ANY: _ANY_RANK}
    return (*(ranks.get(word, _LITERAL_RANK) for word in parse_pattern(pattern)), _END_RANK), pattern


def _rank(entry: tuple[str, bool, AddressSettings]) -> tuple[tuple[tuple[int, ...], str], bool]:
    pattern, kept, _ = entry
    return specificity(pattern), not kept
