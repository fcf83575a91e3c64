"""The operations of `queues create|change|delete|pause|resume|purge` on a message store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from journal.cli.operations.looking import missing_queue
from journal.cli.operations.ports import Json, QueueAct
from journal.errors import FullError, InvalidOperationError, QueueExistsError
from journal.process.commands import command
from journal.store.model import CHANGEABLE, QueueConfig, Routing
from journal.store.store import MessageStore

log = logging.getLogger(__name__)

_WAIT_S = 60.0
"""The longest wait for durability, or for room."""


class QueueActing:
    """Acts on the queues of one store."""

    def __init__(self, store: MessageStore, journal_name: str) -> None:
        self._store = store
        self._name = journal_name

    def act(self, act: QueueAct, *, operator: str) -> Json:
        """Do it, and return once it is durable: the queue's name, what was done, and the number of purged messages.

        Raises QueueMissingError, QueueExistsError, InvalidOperationError, and the errors of the store.
        """
        do = _ACTS.get(act.action)
        if do is None:
            raise InvalidOperationError(f"a queue cannot be asked to {act.action}: this node is of another version")
        if act.action != "create" and all(info.config.name != act.queue for info in self._store.queues()):
            raise missing_queue(act.queue, self._name)
        done = {"queue": act.queue, "action": act.action, "purged": do(self, act.queue, act.fields)}
        log.warning("queue %s: %s by hand, by %s", act.queue, act.action, operator)
        return done

    def _create(self, queue: str, fields: Mapping[str, Any]) -> int:
        named = dict(fields)
        address, routing = str(named.pop("address", "") or queue), str(named.pop("routing", "anycast"))
        config = QueueConfig(queue, address, _routing(routing))
        config = replace(config, **_changeable(named))
        if any(info.config.name == queue for info in self._store.queues()):
            change = command("queues change", queue, journal=self._name)
            raise QueueExistsError(f"queue {queue} exists: {change} changes it")
        if all(entry.name != address for entry in self._store.addresses()):
            self._store.create_address(address).wait(_WAIT_S)
        self._store.create_queue(config).wait(_WAIT_S)
        return 0

    def _change(self, queue: str, fields: Mapping[str, Any]) -> int:
        config = replace(self._store.queue(queue).config, **_changeable(fields))
        self._store.change_queue(config).wait(_WAIT_S)
        return 0

    def _delete(self, queue: str, fields: Mapping[str, Any]) -> int:
        self._store.destroy_queue(queue).wait(_WAIT_S)
        return 0

    def _pause(self, queue: str, fields: Mapping[str, Any]) -> int:
        self._store.pause(queue).wait(_WAIT_S)
        return 0

    def _resume(self, queue: str, fields: Mapping[str, Any]) -> int:
        self._store.resume(queue).wait(_WAIT_S)
        return 0

    def _purge(self, queue: str, fields: Mapping[str, Any]) -> int:
        purging = self._store.purging(queue)
        while True:
            try:
                if not purging.step():
                    return purging.wait(_WAIT_S)
            except FullError:
                self._store.room().wait(_WAIT_S)


_ACTS: Mapping[str, Callable[[QueueActing, str, Mapping[str, Any]], int]] = {
    "create": QueueActing._create,
    "change": QueueActing._change,
    "delete": QueueActing._delete,
    "pause": QueueActing._pause,
    "resume": QueueActing._resume,
    "purge": QueueActing._purge,
}


def _routing(name: str) -> Routing:
    try:
        return Routing[name.upper()]
    except KeyError:
        raise InvalidOperationError(f"{name} is no routing: anycast or multicast") from None


def _changeable(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = sorted(fields.keys() - set(CHANGEABLE))
    if unknown:
        raise InvalidOperationError(f"a queue's {', '.join(unknown)} cannot be set: this node is of another version")
    return fields
