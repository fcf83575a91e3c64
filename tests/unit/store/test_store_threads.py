"""Many threads on one store over a journal that is almost always full: nobody waits for each other for ever."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from journal.limits import Limits
from journal.store.model import Message
from tests.support.stores import StoreNode, declare, infos

SENDERS, EACH = 3, 150


def test_threads_send_and_consume_through_a_full_journal(tmp_path: Path) -> None:
    with StoreNode(
        tmp_path / "node", limits=Limits(queue_operations_max=12, transaction_buffer_operations_max=2)
    ) as node:
        store = node.store
        declare(store, "q", "r")

        def produce(sender: int) -> None:
            for number in range(EACH):
                store.send(Message("orders", b"%d %d" % (sender, number)), ["q", "r"])

        def consume(queue: str) -> list[bytes]:
            got: list[bytes] = []
            while len(got) < SENDERS * EACH:
                delivery = store.take(queue, queue)
                if delivery is None:
                    store.flush().wait(30)
                    continue
                got.append(store.message(delivery.message).body)
                tx = store.begin() if len(got) % 5 == 0 else 0
                store.acknowledge(delivery.message, queue, queue, tx)
                if tx:
                    store.commit(tx)
            return got

        with ThreadPoolExecutor(SENDERS + 2) as pool:
            consumed = [pool.submit(consume, queue) for queue in ("q", "r")]
            for sent in [pool.submit(produce, sender) for sender in range(SENDERS)]:
                sent.result(60)
            results = [each.result(60) for each in consumed]
        store.flush().wait()
        assert (infos(store), infos(store, "r"), store.queue("q").settling) == ([], [], 0)
        for found in results:
            for sender in range(SENDERS):
                mine = [int(body.split()[1]) for body in found if body.startswith(b"%d " % sender)]
                assert mine == list(range(EACH))
