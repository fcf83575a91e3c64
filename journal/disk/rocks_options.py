"""Options of RocksDB, and what all stores of a process share: a block cache and a bound on write buffers."""

from __future__ import annotations

from functools import cache

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, WriteBufferManager

CACHE_BYTES = 128 * 1024 * 1024
"""Bytes of blocks that all stores of a process keep in memory together."""

BUFFERS_BYTES = 128 * 1024 * 1024
"""Bytes of write buffers of all stores of a process together. Beyond this bound, each store that is written is flushed,
even if it has only a few bytes. The same amount again may wait for the disk; then writers wait."""

WRITE_BUFFER_BYTES = 32 * 1024 * 1024
"""Bytes of the write buffer of one table."""

BUFFERS_WAITING_MAX = 2
"""Number of full write buffers of one table that may wait for the disk."""

LEVEL_ZERO_FILES_MAX = 36
"""Number of files of one table that may wait to be merged. A read looks into each of them."""

STORE_FILES = 256
"""Number of files that one store has open."""

SHARD_FILES = 24
"""The number of files that the store of one shard has open. It is small, because a worker may have hundreds of
shards."""

_LOG_BYTES = 64 * 1024 * 1024
"""Bytes of RocksDB's own log, which a start after a crash reads. The log is kept for the table that was flushed longest
ago."""
_ARENA_BYTES = 64 * 1024
"""Smallest size of a write buffer. RocksDB's 1 MiB would be too much for three tables in each of 256 shards."""
_BLOOM_BITS = 10
_COMPACTED_FILES = 8
"""Number of table files at which they are merged, instead of RocksDB's 4. So a row is merged half as often, and a read
looks into a few more files."""
_COMPACTED_FILES_FILLING = 16
_NEVER = 1 << 30
"""A value for RocksDB's own limits on writing that is never reached, because a store waits in its `Room` instead."""


@cache
def block_cache() -> Cache:
    return Cache(CACHE_BYTES)


@cache
def write_buffers() -> WriteBufferManager:
    return WriteBufferManager(BUFFERS_BYTES, False)


def store_options(files_max: int, *, filling: bool = False) -> Options:
    """Options of a table. With `filling` they suit a table that is being filled, and that is opened again with other
    options before it is read much.

    The files of such a table are merged less often and not compressed before that, because compression would take a
    core away from reading the topic. Rows of a topic mostly come in the order of their keys, for which a skip list is
    cheaper than a vector and its sort.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_write_buffer_manager(write_buffers())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_arena_block_size(_ARENA_BYTES)
    options.set_max_write_buffer_number(_NEVER)
    options.set_max_total_wal_size(_LOG_BYTES)
    options.set_max_open_files(files_max)
    options.set_keep_log_file_num(2)
    options.set_max_background_jobs(2)
    if filling:
        options.set_allow_concurrent_memtable_write(False)
        options.set_compression_type(DBCompressionType.none())
    options.set_level_zero_file_num_compaction_trigger(_COMPACTED_FILES_FILLING if filling else _COMPACTED_FILES)
    options.set_level_zero_slowdown_writes_trigger(_NEVER)
    options.set_level_zero_stop_writes_trigger(_NEVER)
    options.set_soft_pending_compaction_bytes_limit(0)
    options.set_hard_pending_compaction_bytes_limit(0)
    blocks = BlockBasedOptions()
    blocks.set_bloom_filter(_BLOOM_BITS, False)
    blocks.set_block_cache(block_cache())
    options.set_block_based_table_factory(blocks)
    return options
