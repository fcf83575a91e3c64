"""State rebuilt from a journal's tables: queues and nodes for a broker, DataFrames for Spark.

These are the names that programs import: `from loaders import QueueLoader`. Those of Spark need the extra `spark`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal.lazy_names import lazy_names

if TYPE_CHECKING:
    from loaders.node.node import Node as Node
    from loaders.node.roles import Role as Role
    from loaders.node.standing import ActiveNode as ActiveNode
    from loaders.queues import QueueLoader as QueueLoader
    from loaders.queues import living_references as living_references
    from loaders.replay import Replaying as Replaying
    from loaders.replay import ReplayResult as ReplayResult
    from loaders.spark.analytics.analytics import Analytics as Analytics
    from loaders.spark.analytics.analytics import analytics as analytics
    from loaders.spark.analytics.follow import follow as follow
    from loaders.spark.analytics.window_sinks import WindowSpan as WindowSpan
    from loaders.spark.analytics.window_sinks import to_delta as to_delta
    from loaders.spark.analytics.window_sinks import to_files as to_files
    from loaders.spark.analytics.window_sinks import to_topic as to_topic
    from loaders.spark.archive.archive import archive as archive
    from loaders.spark.archive.result import ArchiveResult as ArchiveResult
    from loaders.spark.audit.audit import audit as audit
    from loaders.spark.fold.fold import state_as_of as state_as_of
    from loaders.spark.read.archived import read_archive as read_archive
    from loaders.spark.read.archived import read_manifests as read_manifests
    from loaders.spark.read.data_source import KafkaJournal as KafkaJournal
    from loaders.spark.read.readers import read_table as read_table
    from loaders.spark.read.readers import read_transactions as read_transactions
    from loaders.spark.read.readers import read_wal as read_wal
    from loaders.spark.read.readers import stream_table as stream_table
    from loaders.spark.read.readers import stream_wal as stream_wal
    from loaders.spark.read.source import JournalSource as JournalSource
    from loaders.spark.replay.replaying import Filter as Filter
    from loaders.spark.replay.replaying import Selection as Selection
    from loaders.spark.replay.replaying import open_archive as open_archive
    from loaders.spark.session.failures import journal_errors as journal_errors
    from loaders.spark.session.packages import SparkPart as SparkPart
    from loaders.spark.session.session import make_session as make_session
    from loaders.spark.stored.table_stores import TableFormat as TableFormat
    from loaders.spark.tables.store_columns import messages as messages
    from loaders.spark.tables.store_columns import with_store_columns as with_store_columns
    from loaders.spark.tables.tables import TablesResult as TablesResult
    from loaders.spark.tables.tables import keep_tables as keep_tables
    from loaders.spark.tables.tables import read_kept as read_kept
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
