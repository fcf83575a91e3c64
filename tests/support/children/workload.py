"""What a node under test does: seeded choices among all that may be appended, as lines of a script. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from tests.support.script_model import Line, encode

RECORDS_WANTED = 400
PREPARED_WANTED = 6
NUMBERS_PER_EPOCH = 1 << 24
"""Operations are numbered through all activations of a test; each activation begins at a multiple of this."""


class Workload:
    """Chooses operations; most are allowed, and a few are refused for a lock.

    Data says by which operation it was written, so that none can be taken for another's.
    """

    def __init__(self, seed: int, epoch: int, load: Sequence[Line], new_id: Callable[[int], int]) -> None:
        self._chance = random.Random(f"{seed}/{epoch}")
        self._number = epoch * NUMBERS_PER_EPOCH
        self._transaction = epoch * NUMBERS_PER_EPOCH
        self._new_id = new_id
        self._gone: list[int] = []
        self._locked: dict[int, list[int]] = {}
        self._prepared: dict[int, list[Line]] = {}
        self._live = [line["id"] for line in load if line["type"] == "record"]
        for line in load:
            if line["type"] == "prepared":
                self._hold(line["tx"], line["operations"])

    def burst(self) -> Iterator[Line]:
        """Some operations, one transaction, or what settles one. Append each before asking for the next."""
        chance = self._chance
        choice = chance.random()
        if choice < 0.70:
            for _ in range(chance.choice((1, 1, 2, 5, 20, 60))):
                yield self._plain()
        elif choice < 0.88:
            yield from self._local(chance.choice((2, 3, 5, 40)))
        elif choice < 0.94 and len(self._prepared) < PREPARED_WANTED:
            yield from self._prepare()
        elif self._prepared:
            yield from self._settle()

    def refused(self, line: Line) -> None:
        """What was chosen last could not be appended: what it needs is locked."""
        if line["op"] == "add":
            self._live.remove(line["id"])

    # ---- choices ---------------------------------------------------------------------------------------------

    def _plain(self) -> Line:
        chance, live = self._chance, self._live
        if len(live) < 10 or chance.random() < (0.45 if len(live) < RECORDS_WANTED else 0.25):
            return self._add(0)
        held = sorted(held for ids in self._locked.values() for held in ids)
        if chance.random() < 0.02 and held:
            return self._numbered({"op": "delete", "id": chance.choice(held)}, 0)
        if chance.random() < 0.5:
            return self._update(chance.choice(live), 0)
        return self._delete(0)

    def _local(self, operations: int) -> Iterator[Line]:
        """A transaction over several shards that is committed at once; rolled back, or left open, now and then."""
        tx = self._new_transaction()
        mine: list[int] = []
        borrowed: list[int] = []
        for _ in range(operations):
            if self._chance.random() < 0.5 or not self._live:
                line = self._add(tx)
                self._live.pop()
                mine.append(line["id"])
            else:
                line = self._update(self._chance.choice(self._live), tx)
                borrowed.append(line["id"])
            yield line
        end = self._chance.random()
        if end < 0.85:
            self._live += mine
            yield self._numbered({"op": "commit", "tx": tx}, 0)
        elif end < 0.95:
            yield self._numbered({"op": "rollback", "tx": tx}, 0)
        else:
            self._live = [one for one in self._live if one not in set(borrowed)]

    def _prepare(self) -> Iterator[Line]:
        tx = self._new_transaction()
        operations: list[Line] = []
        for _ in range(self._chance.choice((0, 1, 4, 12))):
            choice = self._chance.random()
            if choice < 0.4 or len(self._live) < 10:
                line = self._add(tx)
                self._live.pop()
            elif choice < 0.7:
                line = self._update(self._chance.choice(self._live), tx)
                self._live.remove(line["id"])
            else:
                line = self._delete(tx)
            operations.append(line)
            yield line
        self._hold(tx, operations)
        yield self._numbered({"op": "prepare", "tx": tx, "data": encode(b"xid-%d" % tx)}, 0)

    def _settle(self) -> Iterator[Line]:
        tx = self._chance.choice(sorted(self._prepared))
        operations = self._prepared.pop(tx)
        self._locked.pop(tx)
        commit = self._chance.random() < 0.5
        for line in operations:
            if line["op"] == "update" or (line["op"] == "add") == commit:
                self._live.append(line["id"])
        yield self._numbered({"op": "commit" if commit else "rollback", "tx": tx}, 0)

    def _hold(self, tx: int, operations: Sequence[Line]) -> None:
        """Whatever a prepared transaction touches is left alone until it is settled."""
        self._prepared[tx] = list(operations)
        self._locked[tx] = [line["id"] for line in operations]
        held = set(self._locked[tx])
        self._live = [one for one in self._live if one not in held]

    # ---- lines -----------------------------------------------------------------------------------------------

    def _add(self, tx: int) -> Line:
        chance = self._chance
        if self._gone and chance.random() < 0.1:
            record_id = self._gone.pop(chance.randrange(len(self._gone)))
        else:
            record_id = self._new_id(chance.randrange(1024))
        self._live.append(record_id)
        return self._numbered({"op": "add", "id": record_id, "kind": chance.randrange(256)}, tx)

    def _update(self, record_id: int, tx: int) -> Line:
        replaceable = self._chance.random() < 0.5
        subject = self._chance.randrange(3) if replaceable else 0
        more = {"kind": self._chance.randrange(4), "replaceable": replaceable, "subject": subject}
        return self._numbered({"op": "update", "id": record_id, **more}, tx)

    def _delete(self, tx: int) -> Line:
        record_id = self._live.pop(self._chance.randrange(len(self._live)))
        if not tx:
            self._gone.append(record_id)
        return self._numbered({"op": "delete", "id": record_id}, tx)

    def _numbered(self, line: Line, tx: int) -> Line:
        self._number += 1
        numbered: Line = {"n": self._number, **line}
        if tx:
            numbered["tx"] = tx
        if line["op"] in ("add", "update"):
            size = self._chance.choice((0, 0, 100, 1000)) if self._chance.random() < 0.99 else 20_000
            numbered["data"] = encode(b"%d-" % self._number + b"x" * size)
        return numbered

    def _new_transaction(self) -> int:
        self._transaction += 1
        return self._transaction
