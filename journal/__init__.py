"""The journal, and the message store on it. These are the names that programs import: `from journal import Journal`.

The folders below stand in the order of the data's flow, and may move; the names here stay. Nothing in this package
knows Faust or Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal import errors as errors
from journal.lazy_names import lazy_names

if TYPE_CHECKING:
    from journal.cli.main import main as main
    from journal.config import Settings as Settings
    from journal.config import load_settings as load_settings
    from journal.journal import BlockingJournal as BlockingJournal
    from journal.journal import Journal as Journal
    from journal.limits import Limits as Limits
    from journal.load.loading import FollowingLoader as FollowingLoader
    from journal.load.loading import LoadCounts as LoadCounts
    from journal.load.loading import LoadedPart as LoadedPart
    from journal.load.loading import LoadedUpdate as LoadedUpdate
    from journal.load.loading import Loader as Loader
    from journal.local.journal import LocalJournal as LocalJournal
    from journal.store.chain.chain import MessageStoreChain as MessageStoreChain
    from journal.store.chain.realigning import realign as realign
    from journal.store.message_records import message_facts as message_facts
    from journal.store.model import Delivery as Delivery
    from journal.store.model import Held as Held
    from journal.store.model import Message as Message
    from journal.store.model import Origin as Origin
    from journal.store.model import QueueConfig as QueueConfig
    from journal.store.model import ReferenceInfo as ReferenceInfo
    from journal.store.model import ReferenceState as ReferenceState
    from journal.store.model import Routing as Routing
    from journal.store.operations.look import QueueInfo as QueueInfo
    from journal.store.pending import Pending as Pending
    from journal.store.pending import PendingAll as PendingAll
    from journal.store.queues.rocks_index import RocksReferenceIndex as RocksReferenceIndex
    from journal.store.records import decode_queue as decode_queue
    from journal.store.settings import StoreSettings as StoreSettings
    from journal.store.store import MessageStore as MessageStore
    from journal.store.transactions import StoreTransaction as StoreTransaction
    from journal.v1 import journal_pb2 as journal_pb2
    from journal.v1 import store_pb2 as store_pb2
    from journal.verify.report import Report as Report
    from journal.xa.coordinator import Coordinator as Coordinator
    from journal.xa.data_manager import BranchDataManager as BranchDataManager
    from journal.xa.data_manager import StoreDataManager as StoreDataManager
    from journal.xa.policy import InDoubtPolicy as InDoubtPolicy
    from journal.xa.policy import OnInDoubt as OnInDoubt
    from journal.xa.resource import XaResource as XaResource
    from journal.xa.session import Session as Session
    from journal.xa.watch import InDoubtWatch as InDoubtWatch
    from journal.xa.xid import Xid as Xid
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
