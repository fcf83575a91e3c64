"""What routes keep of names, to make each Kafka name once, is bounded for the process, however many shards it has."""

from __future__ import annotations

import gc

from journal.process.kept import Kept
from tests.support.build import marker, wal
from tests.support.routes import RoutesWorld, message

SHARDS_MAX = 256
MIB = 2**20


def kept_bytes_max() -> int:
    """Bytes that all tables of names in this process may take together."""
    gc.collect()
    return sum(each.bytes_max for each in gc.get_objects() if isinstance(each, Kept))


def test_the_shards_of_a_process_keep_together_what_one_shard_may_keep() -> None:
    world = RoutesWorld(wal([marker()], [message(1)]))
    before = kept_bytes_max()
    routes = world.routes()
    of_one = routes.outgoing(0)
    alone = kept_bytes_max() - before
    others = [routes.outgoing(shard) for shard in range(1, SHARDS_MAX)]
    assert len(others) == SHARDS_MAX - 1
    assert of_one is not others[0]
    assert 0 < kept_bytes_max() - before == alone <= 64 * MIB
