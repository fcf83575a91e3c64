"""The operations of `queues create|change|delete|pause|resume|purge` on a message store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
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
        """Do it, and return once it is durable: the queue's name and what was done; for a purge `purged`, the number of
        messages.

        Raises QueueMissingError, QueueExistsError, InvalidOperationError, and the errors of the store.
        """
        queue, store = act.queue, self._store
        if act.action != "create" and all(info.config.name != queue for info in store.queues()):
            raise missing_queue(queue, self._name)
        done: Json = {"queue": queue, "action": act.action}
        match act.action:
            case "create":
                self._create(queue, act.fields)
            case "change":
                config = replace(store.queue(queue).config, **_changeable(act.fields))
                store.change_queue(config).wait(_WAIT_S)
            case "delete":
                store.destroy_queue(queue).wait(_WAIT_S)
            case "pause":
                store.pause(queue).wait(_WAIT_S)
            case "resume":
                store.resume(queue).wait(_WAIT_S)
            case "purge":
                done["purged"] = self._purge(queue)
            case other:
                raise InvalidOperationError(f"a queue cannot be asked to {other}: this node is of another version")
        log.warning("queue %s: %s by hand, by %s", queue, act.action, operator)
        return done

    def _create(self, queue: str, fields: Mapping[str, Any]) -> None:
        named = dict(fields)
        address, routing = str(named.pop("address", "") or queue), str(named.pop("routing", "anycast"))
        config = replace(QueueConfig(queue, address, _routing(routing)), **_changeable(named))
        if any(info.config.name == queue for info in self._store.queues()):
            change = command("queues change", queue, journal=self._name)
            raise QueueExistsError(f"queue {queue} exists: {change} changes it")
        if all(entry.name != address for entry in self._store.addresses()):
            self._store.create_address(address).wait(_WAIT_S)
        self._store.create_queue(config).wait(_WAIT_S)

    def _purge(self, queue: str) -> int:
        purging = self._store.purging(queue)
        while True:
            try:
                if not purging.step():
                    return purging.wait(_WAIT_S)
            except FullError:
                self._store.room().wait(_WAIT_S)


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
