"""A caller of the active node: bursts of calls by chance, each judged at once against the reference."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from journal.append.completion import Completion
from journal.append.core import Core
from journal.append.state import JournalState
from journal.errors import CallerError, FullError, JournalError, StateError
from tests.simulation.batches import Batch, Batches, refusal_of
from tests.simulation.history import History, Tenure
from tests.simulation.reference import Call, Reference, Verb

RECORDS_MAX = 24
_VERBS: tuple[Verb, ...] = ("add",) * 9 + ("update",) * 10 + ("delete",) * 5
_SETTLING: tuple[Verb, ...] = ("prepare", "prepare", "commit", "commit", "commit", "rollback")


class Workload:
    """Calls one node's core, and notes what it was told."""

    def __init__(self, core: Core, tenure: Tenure, history: History, chance: Random, next_data: Callable[[], int]):
        self.reference = Reference.of(tenure.load.seen)
        """The state as accepted so far."""
        self._core = core
        self._tenure = tenure
        self._history = history
        self._chance = chance
        self._next_data = next_data
        self._deleted: list[int] = []
        self._settled: list[int] = []
        """Records of the last commit: what follows it soon is often about one of them."""
        self._transactions = chance.choice((0.0, 0.15, 0.5))
        self._large = chance.choice((0.0, 0.1, 0.25))
        self._batched = chance.choice((0.0, 0.0, 0.3))
        self._batches = Batches(chance, self._data)

    def burst(self) -> Completion | None:
        """Some calls without a pause; what to wait for if the queue is full."""
        for _ in range(self._chance.choice((1, 1, 2, 4, 8, 16))):
            calls, operations = self._choose_batch() or ([self._choose()], None)
            refusal = refusal_of(self.reference, calls)
            try:
                completion = self._make(calls[0]) if operations is None else self._core.append_all(operations)
            except FullError:
                if self._core.state is not JournalState.ACTIVE:
                    return None
                if not calls[0].tx:
                    return self._core.room()
                self._settle_one()
                return None
            except StateError:
                return None
            except CallerError as error:
                self._history.refused += 1
                if refusal is not type(error):
                    expected = refusal.__name__ if refusal else "acceptance"
                    self._history.violate(f"accepted: {calls} met {type(error).__name__} instead of {expected}")
            except JournalError:
                return None
            else:
                if refusal is not None:
                    self._history.violate(f"accepted: {calls} instead of {refusal.__name__}")
                    return None
                for call in calls:
                    self._accept(call, completion)
        return None

    def _accept(self, call: Call, completion: Completion) -> None:
        self._history.operations += 1
        settled = self.reference.transactions[call.tx].calls if call.verb == "commit" else []
        self.reference.apply(call)
        self._tenure.accepted(call, completion)
        if call.verb == "delete" and not call.tx:
            self._deleted.append(call.id)
        if call.verb == "commit":
            self._settled = [done.id for done in settled]

    def _settle_one(self) -> None:
        """Staged transactions are at their bound: settle one."""
        for tx in self.reference.transactions:
            call = Call(self._chance.choice(("commit", "rollback")), tx=tx)
            try:
                completion = self._make(call)
            except JournalError:
                return
            self._accept(call, completion)
            return

    def _make(self, call: Call) -> Completion:
        core = self._core
        if call.verb == "add":
            return core.add(call.id, call.kind, call.data, call.tx)
        if call.verb == "update":
            return core.update(call.id, call.kind, call.data, call.replaceable, call.subject, call.tx)
        if call.verb == "delete":
            return core.delete(call.id, call.tx)
        if call.verb == "prepare":
            return core.transactions.prepare(call.tx, call.data)
        return core.transactions.commit(call.tx) if call.verb == "commit" else core.transactions.rollback(call.tx)

    # ---- choosing --------------------------------------------------------------------------------------------

    def _choose(self) -> Call:
        chance, reference = self._chance, self.reference
        if chance.random() < self._transactions * 0.4:
            open_ones = list(reference.transactions)
            tx = chance.choice(open_ones) if open_ones and chance.random() < 0.95 else chance.randrange(1, 9)
            verb = chance.choice(_SETTLING)
            return Call(verb, data=self._data() if verb == "prepare" else b"", tx=tx)
        tx = chance.randrange(1, 9) if chance.random() < self._transactions else 0
        verb = chance.choice(_VERBS)
        if verb == "add" and len(reference.records) >= RECORDS_MAX and chance.random() < 0.8:
            verb = "delete"
        if verb == "add":
            return Call(verb, self._new_id(), chance.randrange(3), self._data(), tx=tx)
        record_id = self._some_id()
        if verb == "delete":
            return Call(verb, record_id, tx=tx)
        subject, replaceable = chance.randrange(3), chance.random() < 0.5
        return Call(verb, record_id, chance.randrange(2), self._data(), replaceable, subject, tx)

    def _choose_batch(self) -> Batch | None:
        """Several calls that are made as one, now and then."""
        chance = self._chance
        if chance.random() >= self._batched:
            return None
        match chance.choice(("together", "new", "deleted")):
            case "together":
                calls = [call for call in (self._choose() for _ in range(chance.randrange(2, 6))) if not call.tx]
                return self._batches.together(calls) if calls else None
            case "new":
                if len(self.reference.records) >= RECORDS_MAX:
                    return None
                try:
                    ids = self._core.new_ids([chance.randrange(6)] * chance.randrange(1, 5))
                except StateError:
                    return None
                self._tenure.issued += ids
                return self._batches.new_records(ids)
            case _:
                return self._batches.deleted_records(list(self.reference.records))

    def _new_id(self) -> int:
        if self._deleted and self._chance.random() < 0.15:
            return self._chance.choice(self._deleted)
        if self._chance.random() < 0.1:
            return self._chance.randrange(1, 16)  # an id of the caller's choice, sequence 0
        try:
            record_id = self._core.new_id(self._chance.randrange(6))
        except StateError:
            return 1
        self._tenure.issued.append(record_id)
        return record_id

    def _some_id(self) -> int:
        if self._settled and self._chance.random() < 0.5:
            return self._settled.pop()
        ids = list(self.reference.records)
        for one in self.reference.transactions.values():
            ids += [call.id for call in one.calls if call.verb == "add"]
        return self._chance.choice(ids) if ids else 1

    def _data(self) -> bytes:
        number = b"%d" % self._next_data()
        roll = self._chance.random()
        if roll < self._large and not self._history.is_slow:
            return number.ljust(self._chance.choice((300, 1200)), b".")
        return number.ljust(40, b".") if roll > 0.7 else number
