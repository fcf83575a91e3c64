"""The Faust side of the journal: the worker that applies the WAL to the tables, and apps with agents around it.

These are the names that programs import: `from streams import make_app`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal.lazy_names import lazy_names

if TYPE_CHECKING:
    from streams.agents.agents import Told as Told
    from streams.agents.changes import AgentState as AgentState
    from streams.agents.changes import Changes as Changes
    from streams.agents.changes import LiveRecord as LiveRecord
    from streams.agents.changes import RecordChange as RecordChange
    from streams.agents.changes import RowChange as RowChange
    from streams.apps.factory import JournalApp as JournalApp
    from streams.apps.factory import make_app as make_app
    from streams.apps.factory import run_app as run_app
    from streams.apps.view import GlobalView as GlobalView
    from streams.apps.view import MessageView as MessageView
    from streams.apps.view import QueueView as QueueView
    from streams.apps.view import TransactionView as TransactionView
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
