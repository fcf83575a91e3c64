"""Settings of addresses that are set while the store runs. The journal has one record for each pattern."""

from __future__ import annotations

from journal.append.operations import PlainOperation
from journal.errors import InvalidOperationError
from journal.patterns import parse_pattern
from journal.store.address_settings import AddressSettings, KeptSettings, ToldSetting
from journal.store.operations.core import StoreCore
from journal.store.operations.declare import virtual_shard_of
from journal.store.pending import Pending
from journal.store.records import encode_address_settings
from journal.v1.journal_pb2 import ADD, DELETE
from journal.v1.store_pb2 import ADDRESS_SETTINGS


class AddressSettingsOperations:
    """Operations on the entries of patterns."""

    def __init__(self, core: StoreCore) -> None:
        self._core = core

    def set(self, pattern: str, settings: AddressSettings) -> Pending:
        """Replace the pattern's record, in one group."""
        data = encode_address_settings(pattern, settings)
        _require_pattern(pattern)
        core = self._core
        with core.lock:
            core.enter()
            record_id = core.journal.new_id(virtual_shard_of(pattern))
            operations: list[PlainOperation] = []
            if old := core.address_settings.record_of(pattern):
                operations.append((DELETE, old, 0, b"", False, 0))
            operations.append((ADD, record_id, ADDRESS_SETTINGS, data, False, 0))
            completion = core.journal.append_all(operations)
            core.address_settings.keep(record_id, pattern, settings)
            return Pending(record_id, completion)

    def unset(self, pattern: str) -> Pending:
        core = self._core
        with core.lock:
            core.enter()
            record_id = core.address_settings.record_of(pattern)
            if not record_id:
                raise InvalidOperationError(f"nothing is set in the journal for pattern {pattern!r}")
            completion = core.journal.delete(record_id)
            core.address_settings.forget(pattern)
            return Pending(record_id, completion)

    def kept(self) -> list[KeptSettings]:
        with self._core.lock:
            self._core.enter()
            return self._core.address_settings.kept()

    def told(self, address: str) -> dict[str, ToldSetting]:
        with self._core.lock:
            self._core.enter()
            return self._core.address_settings.told(address)


def _require_pattern(pattern: str) -> None:
    try:
        parse_pattern(pattern)
    except ValueError as error:
        raise InvalidOperationError(str(error)) from None
