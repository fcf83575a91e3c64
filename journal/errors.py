"""Every error the journal raises, in families that a caller acts on differently.

JournalError
  OperatingError       retry, or mend the environment
  CallerError          the call or the configuration is wrong; nothing was changed
  CorruptionError      a topic or a local file holds what it must not hold
  FencedError          another node is active; this one is done
  OutcomeUnknownError  it may or may not have happened; ask the journal after the next activation
"""

from __future__ import annotations

from typing import Self

from journal.words import shortened


class JournalError(Exception):
    """Root of all errors of this project. What it says is shortened: clients' texts may be in it."""

    def __str__(self) -> str:
        return shortened(super().__str__())

    def again(self) -> Self:
        """This error, which is kept, to be raised once more. Without this each raise would add its frames to those of
        all raises before, and what they have would stay in memory."""
        return self.with_traceback(None)


# ---- operating: retry, or mend the environment -------------------------------------------------------------


class OperatingError(JournalError):
    """The environment does not allow it now. Nothing was done that a retry would repeat."""


class KafkaUnavailableError(OperatingError):
    """Raised by every Kafka access when no broker answers in time. Check the brokers, then retry."""


class KafkaRefusedError(OperatingError):
    """Raised when Kafka answers with an error that a retry does not mend (authorisation, message too large)."""


class FullError(OperatingError):
    """Raised by appends when a bound is reached (queue, staged operations). Await `journal.room()`, or settle first."""


class QueueFullError(FullError):
    """Raised by appends that find no room in the queue in time. Await `journal.room()`."""


class GateTimeoutError(OperatingError):
    """Raised by activation when a shard's mark did not reach the epoch in time. Is a worker running?"""


class DeadlineError(OperatingError):
    """Raised by a wait that ran past its deadline. What was waited for may still happen."""


class HangingTransactionError(DeadlineError):
    """Raised when a Kafka transaction stays open in front of what must be read. Let it end, or abort it there."""


class StaleReadError(OperatingError):
    """Raised when Kafka has answered a read with less than it had acknowledged: a leader that was deposed did, or
    records are lost. Nothing is decided by it; it is read again."""


class TopicError(OperatingError):
    """Raised when a topic is missing or not as the journal needs it; the message carries the command that mends it."""


class LocalStorageError(OperatingError):
    """Raised when the local RocksDB copy cannot be written or read (full disk, permissions, another process)."""


class LocalDamageError(LocalStorageError):
    """Raised when files of a local RocksDB cannot be read any more. A copy is built anew."""


class ActiveNodeError(OperatingError):
    """Raised when a command that appends finds a live active node. Stop that node, or pass --take-over."""


class NotActiveError(OperatingError):
    """Raised by a node's control socket while that node is not the active one. Names the one that is, if known."""


class NodeSocketError(OperatingError):
    """Raised by `--node` when no running node's control socket answers, and by a node that cannot open its own."""


class DescriptorsError(OperatingError):
    """Raised at the start of a process that may have fewer files and connections open than it needs; it says so."""


class OutputError(OperatingError):
    """Raised by a command whose standard output is closed, or on a full disk. What it did before is done."""


class EmbeddedKafkaError(OperatingError):
    """Raised by the embedded Apache Kafka: Java missing or old, port taken, half-formatted directory, no start."""


class MissingExtraError(OperatingError):
    """Raised by what needs an optional dependency that is not installed; the message carries the command."""


class AgentError(OperatingError):
    """Raised when an agent of a service's own raises, gives what cannot be sent or is refused, or takes too long: names
    the agent and the shard. Nothing of what it was told counts as told; it is told again."""


class RouteStopError(OperatingError):
    """Raised by a route that cannot send a message, where its policy is `fail` or its topic is not to be had: the shard
    stops before the frame at `offset`, with everything before it checkpointed.

    The message has the commands to go on with. `retried` says that the worker tries again by itself.
    """

    def __init__(self, reason: str, *, offset: int, retried: bool) -> None:
        super().__init__(reason)
        self.offset = offset
        self.retried = retried


class WebPortError(OperatingError):
    """Raised by a service whose web server cannot listen at the address it was given. Choose another port."""


class NotTakenInError(OperatingError):
    """Raised by the completion of records of a source that are known not to be in the journal, nor their offsets
    committed. Consume again from the committed offsets."""


class DemoError(OperatingError):
    """Raised by the demo when one of its processes ends before its time. Its logs say why."""


# ---- caller's mistake: nothing was changed ------------------------------------------------------------------


class CallerError(JournalError):
    """The call is not allowed. Nothing was changed."""


class ConfigError(CallerError):
    """Raised when a setting is missing, malformed or contradicts another."""


class InvalidOperationError(CallerError):
    """Raised by appends whose arguments are out of range (id, kind, subject, data size)."""


class StateError(CallerError):
    """Raised when the journal is not in a state that allows the call (an append before active, a second activate)."""


class CallbackError(CallerError):
    """Raised in a completion's callback by whatever may wait (any call of a store, a wait for another completion, a
    journal's close): the callback may run in the thread that is waited for. Have another thread do it."""


class RecordExistsError(CallerError):
    """Raised by add when a record of that id lives."""


class RecordMissingError(CallerError):
    """Raised by update and delete when no record of that id lives."""


class LockedError(CallerError):
    """Raised when another open or prepared transaction holds what the operation needs, until that one is settled."""


class TransactionUnknownError(CallerError):
    """Raised by prepare, commit and rollback of a transaction that is neither open nor prepared."""


class TransactionPreparedError(CallerError):
    """Raised by an operation or a second prepare for a transaction that is already prepared."""


class RolledBackError(CallerError):
    """Raised by completions of operations whose transaction was rolled back."""


class IdsExhaustedError(CallerError):
    """Raised when a virtual shard has no sequence left, or a caller-chosen id space is used up."""


class StoreError(CallerError):
    """Root of what the message store refuses; nothing was changed."""


class AddressMissingError(StoreError):
    """Raised for an address that does not exist. Create it first."""


class AddressExistsError(StoreError):
    """Raised by creating an address that exists."""


class AddressInUseError(StoreError):
    """Raised by destroying an address that still has queues. Destroy them first."""


class QueueMissingError(StoreError):
    """Raised for a queue that does not exist."""


class QueueExistsError(StoreError):
    """Raised by creating a queue, or a durable subscription, that exists."""


class QueueInDoubtError(StoreError):
    """Raised by destroying a queue of which transactions in doubt hold messages. Settle them first."""


class MessageMissingError(StoreError):
    """Raised for a message that is not there, or not in that queue (any more): acknowledged, say.

    `message` is its id. Where many were to be acknowledged none was: leave it out, and try again.
    """

    def __init__(self, reason: str, message: int = 0) -> None:
        super().__init__(reason)
        self.message = message


class MessageExpiredError(MessageMissingError):
    """Raised by acquiring a message that has expired and that nobody has. `expire` settles it."""


class MessageHeldError(StoreError):
    """Raised for a message that another holder has acquired, or that a transaction has locked.

    `message` is its id. Where many were to be acknowledged none was: leave it out, and try again.
    """

    def __init__(self, reason: str, message: int = 0) -> None:
        super().__init__(reason)
        self.message = message


class MessageTooLargeError(StoreError):
    """Raised for a body over `message_bytes_max`."""


class DuplicateMessageError(StoreError):
    """Raised for a message whose duplicate-detection id its address has seen, or that is reserved for another.

    `duplicate_id` is that id. Where many were to be sent none was: leave its message out, and try again.
    """

    def __init__(self, reason: str, duplicate_id: bytes = b"") -> None:
        super().__init__(reason)
        self.duplicate_id = duplicate_id


class XidError(StoreError):
    """Raised for an xid whose parts have the wrong size, that is in use, unknown, or not in the state for the call."""

    def __init__(self, reason: str, *, code: int) -> None:
        """`code` is X/Open's: XAER_NOTA -4, XAER_INVAL -5, XAER_PROTO -6, XAER_DUPID -8, XAER_OUTSIDE -9 and so on."""
        super().__init__(reason)
        self.code = code


class RepairError(CallerError):
    """Raised by `repair skip` and `routes resume` for an offset that no shard is stopped at, and says where it stands;
    by `repair control` for what needs no mending, or cannot be mended."""


class TrimError(CallerError):
    """Raised by `trim` when it may not delete what it was asked to: no archive, or tables that differ from the WAL."""


class ArchiveError(CallerError):
    """Raised by `spark archive` and readers of archives: one of another journal, or that another job writes to."""


class ScriptError(CallerError):
    """Raised by `apply` for a line that is not an operation; names the line."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


# ---- corruption ----------------------------------------------------------------------------------------------


class CorruptionError(JournalError):
    """A topic or local copy holds what it must not hold. Names the place; nothing is skipped in silence.

    Raised by whoever reads it (worker, replica, load). Look at the bytes, then `kafka-journal repair skip`.
    """

    def __init__(self, reason: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        place = f"{topic}[{partition}]@{offset}: " if topic else ""
        super().__init__(place + reason)
        self.reason = shortened(reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class FrameError(CorruptionError):
    """Raised for WAL bytes that are not a frame of this journal (magic, format, uuid, counts, impossible operation)."""


class GapError(CorruptionError):
    """Raised when a frame does not follow its predecessor, or the log starts behind what is needed: frames are gone."""


class ControlLostError(CorruptionError):
    """Raised when the control rows lack what the WAL or the tables prove they had, and a read behind an acknowledged
    write confirms it. `kafka-journal repair control` writes them anew."""


class RowError(CorruptionError):
    """Raised for table or control bytes that do not parse as what their key says."""


class CountError(CorruptionError):
    """Raised by a load that found other numbers of rows than the marks say, in a copy that was just built from the
    topic: the table has lost rows, or has some back. `kafka-journal verify -j NAME` names which. And by a LocalJournal
    whose directory was damaged: restore it from a backup, as there is no other copy."""


# ---- fencing and unknown outcomes ----------------------------------------------------------------------------


class FencedError(JournalError):
    """Another node took the journal over. Raised to every later call; step down and hand out nothing more."""

    def __init__(self, reason: str, *, epoch: int = 0) -> None:
        super().__init__(reason)
        self.epoch = epoch


class OutcomeUnknownError(JournalError):
    """A group was sent and its fate could not be learned in time. A later load shows it whole or not at all."""


class ClosedError(StateError):
    """Raised to calls after close, and by completions of operations that close cut off before they were sent."""
