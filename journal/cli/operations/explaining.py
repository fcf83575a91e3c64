"""The facts that `explain` shows about a record: what it is, and why it still exists.

The queues show the references of a message, and the prepared transactions show the records that they lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from journal.cli.operations.in_doubt import InDoubtTransaction, in_doubt, queue_name
from journal.cli.operations.outcomes import decision_word
from journal.cli.operations.queue_lines import age_s, shown_values
from journal.cli.operations.views import QueuesView
from journal.cli.text import duration, printable
from journal.errors import RowError
from journal.fold.rows import Base
from journal.load.loading import LoadedUpdate, one_record
from journal.process.commands import command
from journal.process.progress import Progress
from journal.store.message_records import decode_message, message_facts
from journal.store.model import ReferenceInfo, ReferenceState
from journal.store.records import decode_address, decode_address_settings, decode_binding, decode_queue
from journal.v1.journal_pb2 import ADD, DELETE, UPDATE, Record
from journal.v1.store_pb2 import ACKNOWLEDGE, ADDRESS, ADDRESS_SETTINGS, BINDING, CHUNK, MESSAGE, OUTCOME, QUEUE
from journal.wire.ids import shard_of
from journal.wire.keys import RECORD_KEY_BYTES, RECORD_TAG, record_key
from journal.words import counted
from journal.xa.outcomes import decode_outcome
from journal.xa.xid import text

_PROGRESS_ROWS = 4096
_DOES: Mapping[int, str] = {ADD: "adds", UPDATE: "updates", DELETE: "deletes"}
_WILL: Mapping[str, str] = {
    "adds": "will add it there",
    "acknowledges": "will acknowledge it",
    "changes": "will acquire, release, count or schedule it",
}


@dataclass(slots=True)
class Explanation:
    """What a record is, and why it exists."""

    id: int
    what: str
    facts: dict[str, Any]
    why: list[str] = field(default_factory=list)
    references: list[dict[str, Any]] = field(default_factory=list)
    """A message's references, one for each queue."""
    transactions: list[dict[str, Any]] = field(default_factory=list)
    """The transactions in doubt that touch the record."""


class Explaining:
    """Looks up one record in a state."""

    def __init__(
        self, record_id: int, queues: QueuesView, base: Base, shards: int, now_ms: float, progress: Progress
    ) -> None:
        self._id = record_id
        self._queues = queues
        self._base = base
        self._shards = shards
        self._now_ms = now_ms
        self._progress = progress
        self._touching: dict[int, InDoubtTransaction] = {}
        self._destroying: dict[str, InDoubtTransaction] = {}
        """For each queue, the transaction that destroys it."""
        for each in in_doubt(base):
            if any(op.id == record_id for op in each.operations):
                self._touching[each.tx] = each
            self._destroying.update(dict.fromkeys(each.destroys, each))

    def explanation(self) -> Explanation | None:
        """The explanation; None if there is no such record, and no transaction that would add it."""
        found = self._found()
        if found is None:
            return None
        for transaction in self._touching.values():
            does = self._what_does(transaction)
            found.transactions.append({"tx": transaction.tx, "text": transaction.text, "does": does})
            if found.what != "message":
                found.why.append(f"{_named(transaction)} {' and '.join(does)} it: {_look_at(transaction.tx)}")
        return found

    def _found(self) -> Explanation | None:
        row = self._base.get(record_key(self._id))
        if row is None:
            return self._not_there()
        record = Record.FromString(row)
        kinds: dict[int, Callable[[Record], Explanation]] = {
            MESSAGE: self._message,
            QUEUE: self._queue,
            ADDRESS: self._address,
            BINDING: self._binding,
            CHUNK: self._chunk,
            OUTCOME: self._outcome,
            ADDRESS_SETTINGS: self._address_settings,
        }
        return kinds.get(record.kind, self._plain)(record)

    def _explained(self, what: str, facts: dict[str, Any], *why: str) -> Explanation:
        return Explanation(self._id, what, facts | {"shard": shard_of(self._id, self._shards)}, list(why))

    def _not_there(self) -> Explanation | None:
        """The explanation of a record that does not exist: a transaction may add it, or the number may be a
        transaction's."""
        if self._touching:
            return self._explained("record", {}, "it is not there yet")
        infos = self._queues.references(self._id)
        if infos:
            why = "it is in no table: it is not durable, or was stored a moment ago"
            return self._of_queues(self._explained("message", {}), infos, 0, why)
        for transaction in in_doubt(self._base):
            if transaction.tx == self._id:
                why = f"it is no record, but a transaction in doubt: {_look_at(self._id)}"
                return Explanation(self._id, "transaction", {"called": transaction.text}, [why])
        return None

    # ---- messages --------------------------------------------------------------------------------------------------

    def _message(self, record: Record) -> Explanation:
        message = decode_message(record.data)
        facts = {
            "address": message.address,
            "bytes": message_facts(record.data).size,
            "priority": message.priority,
            "timestamp": message.timestamp,
            "age_seconds": age_s(message.timestamp, self._now_ms),
            "expires": message.expires,
            "properties": shown_values(message.properties),
            "origin": message.origin and message.origin._asdict(),
            "text": printable(message.body),
            "acknowledged": [self._queue_called(each) for each in self._acknowledged()],
        }
        infos = self._queues.references(self._id)
        if not infos:
            return self._explained("message", facts, f"no queue refers to it any more: {self._queues.deleted_by}")
        return self._of_queues(self._explained("message", facts), infos, message.expires)

    def _of_queues(self, found: Explanation, infos: Sequence[ReferenceInfo], expires: int, *why: str) -> Explanation:
        """The explanation of a message, with its references in the queues."""
        found.why += [*why, *(self._why(info, expires) for info in infos)]
        for info in infos:
            line = {"queue": info.queue, "state": info.state.value, "holder": info.holder}
            found.references.append(line | {"tx": info.tx, "deliveries": info.deliveries, "due": info.due})
        return found

    def _acknowledged(self) -> Sequence[int]:
        """Queues that have settled the message."""
        return [update.subject for update in _updates_of(self._base, self._id) if update.kind == ACKNOWLEDGE]

    def _why(self, info: ReferenceInfo, expires: int) -> str:
        """Why one queue still has the message."""
        before = f", handed out {counted(info.deliveries, 'time')} before" if info.deliveries else ""
        match info.state:
            case ReferenceState.HELD:
                why = f"held by {info.holder}{before}, until that acknowledges or releases it, or its broker lets it go"
            case ReferenceState.LOCKED if info.tx not in self._touching:
                why = f"transaction {info.tx}, which is still open, may acknowledge it or add it there"
            case ReferenceState.LOCKED:
                transaction = self._touching[info.tx]
                does = {(each.queue, each.message): each.does for each in transaction.references}
                # a load does not have queues that are not durable
                will = _WILL[does.get((info.queue, self._id), "changes")]
                why = f"{_named(transaction)} {will}, or not: {_look_at(info.tx)}"
            case ReferenceState.SCHEDULED:
                why = f"scheduled, due in {duration((info.due - self._now_ms) / 1000)}{before}"
            case ReferenceState.SETTLING:
                why = "acknowledged, which is about to be durable"
            case ReferenceState.READY:
                why = f"ready, and nobody has taken it{before}"
        if expires and expires <= self._now_ms:
            why += f"; it expired {duration((self._now_ms - expires) / 1000)} ago, and its broker has not moved it"
        if info.queue in self._destroying:
            transaction = self._destroying[info.queue]
            why += f"; {_named(transaction)} destroys the queue, or not: {_look_at(transaction.tx)}"
        return f"queue {info.queue}: {why}"

    # ---- other records ---------------------------------------------------------------------------------------------

    def _queue(self, record: Record) -> Explanation:
        name = decode_queue(record.data).name
        line = next((line for line in self._queues.lines(self._now_ms) if line["queue"] == name), None)
        if line is None:
            gone = "nobody can use it" if self._touching else "it has just been destroyed"
            return self._explained("queue", {"queue": name}, gone)
        why = [f"a queue stays until its broker destroys it; messages in it: {line['depth']:,}"]
        why += [f"{holder} holds {count:,} of them" for holder, count in line["holders"].items()]
        for transaction in in_doubt(self._base):
            if any(each.queue == name for each in transaction.references):
                held = f"{_named(transaction)} holds messages of it, so that it cannot be destroyed"
                why.append(f"{held}: {_look_at(transaction.tx)}")
        return self._explained("queue", line, *why)

    def _address(self, record: Record) -> Explanation:
        name, window = decode_address(record.data)
        queues = [line["queue"] for line in self._queues.lines(self._now_ms) if line["address"] == name]
        facts = {"address": name, "duplicate_window": window, "queues": queues}
        before = ", and its queues before it" if queues else ""
        return self._explained("address", facts, "an address stays until its broker destroys it" + before)

    def _binding(self, record: Record) -> Explanation:
        queue, key, filter = decode_binding(record.data)
        facts = {"queue": queue_name(self._base, queue), "key": key, "filter": filter}
        if facts["queue"]:
            why = "a binding stays until it is unbound, or its queue destroyed"
        else:
            why = "its queue is gone: the next activation deletes it"
        return self._explained("binding", facts, why)

    def _chunk(self, record: Record) -> Explanation:
        message = self._message_of_chunk()
        why = "a part of a large message's body, and no message has it"
        if message:
            why = f"a part of the body of message {message}, with which it goes: {command('explain', message)}"
        return self._explained("chunk", {"bytes": len(record.data), "message": message}, why)

    def _message_of_chunk(self) -> int:
        """The message that a chunk belongs to; 0 if there is none. It looks at all messages."""
        needle = self._id.to_bytes(8, "little")
        for count, (key, value) in enumerate(self._base.scan(RECORD_TAG)):
            if count % _PROGRESS_ROWS == 0:
                self._progress("messages", count, 0)
            if needle in value and len(key) == RECORD_KEY_BYTES:
                record = Record.FromString(value)
                if record.kind == MESSAGE and self._id in message_facts(record.data).chunks:
                    return record.id
        return 0

    def _outcome(self, record: Record) -> Explanation:
        try:
            outcome = decode_outcome(self._id, record.data)
        except RowError:  # another broker may use this kind for something else
            return self._plain(record)
        decision = decision_word(outcome.decision)
        facts = {"xid": text(outcome.xid), "decision": decision, "timestamp": outcome.timestamp}
        age = duration((self._now_ms - outcome.timestamp) / 1000)
        why = f"decided {age} ago, and kept until those who have to hear of it have confirmed (forget)"
        return self._explained("outcome", facts, why)

    def _address_settings(self, record: Record) -> Explanation:
        pattern, settings = decode_address_settings(record.data)
        why = "it stays until its broker sets the pattern anew or takes it back (unset_address_settings)"
        return self._explained("address settings", {"pattern": pattern} | settings.named, why)

    def _plain(self, record: Record) -> Explanation:
        facts = {"kind": record.kind, "bytes": len(record.data), "text": printable(record.data)}
        facts["updates"] = len(_updates_of(self._base, self._id))
        return self._explained("record", facts, "a broker's own record: it stays until the broker deletes it")

    # ---- words -----------------------------------------------------------------------------------------------------

    def _queue_called(self, record_id: int) -> str:
        return queue_name(self._base, record_id) or f"{record_id} (destroyed)"

    def _what_does(self, transaction: InDoubtTransaction) -> list[str]:
        return list(dict.fromkeys(_DOES[op.type] for op in transaction.operations if op.id == self._id))


def _named(transaction: InDoubtTransaction) -> str:
    return f"transaction {transaction.tx} ({transaction.text}), in doubt,"


def _look_at(tx: int) -> str:
    return command("tx show", tx)


# ---- one record's updates ----------------------------------------------------------------------------------


def _updates_of(base: Base, record_id: int) -> Sequence[LoadedUpdate]:
    key = record_key(record_id)
    rows = dict(base.scan(key))
    row = rows.pop(key, None)
    return () if row is None else one_record(row, rows.items())[3]
