"""Every error of this project, in families that a caller acts on differently. No other file defines a `JournalError`.

JournalError
  OperatingError       the environment fails: retry, or mend it
  CallerError          the call or the configuration is wrong; nothing was changed
  CorruptionError      a topic or a local file holds what it must not hold
  FencedError          another node is active; this one is done
  OutcomeUnknownError  it may or may not have happened; the next activation shows which

An exception that one folder both raises and catches is not part of this list: it is defined in that folder, and is not
a `JournalError`. Each docstring says what happened and what to do, for users too (docs/OPERATIONS.md, "What each error
means").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from journal.words import shortened


class JournalError(Exception):
    """The root of all errors. Its text is shortened, because it may contain a client's text of any length."""

    def __str__(self) -> str:
        return shortened(super().__str__())

    def again(self) -> Self:
        """This error without its traceback, for an error that is kept and raised many times. Otherwise each raise would
        lengthen the traceback, and the traceback would keep all objects of the earlier calls in memory."""
        return self.with_traceback(None)


# ---- operating: retry, or mend the environment -------------------------------------------------------------


class OperatingError(JournalError):
    """The environment does not allow the call now. Nothing was done, so a retry is safe."""


class KafkaUnavailableError(OperatingError):
    """No broker answers in time. Every access to Kafka raises it; check the brokers, then retry."""


class KafkaRefusedError(OperatingError):
    """Kafka refuses a request, and a retry does not change that. Mend what the message names: authorisation, the size
    of a message, a quota."""


class ProducerError(OperatingError):
    """The root of what a transactional producer raises, in the three kinds of librdkafka's documentation. The node or
    worker does it over by itself, and its log says why; if it stays, look at the brokers."""


class RetriableProducerError(ProducerError):
    """The call did nothing, so that the same call may be made again. An `init` that timed out raises it too, and may
    still take effect."""


class AbortableProducerError(ProducerError):
    """The transaction cannot be committed. If no commit was called for it, abort it and go on."""


class FatalProducerError(ProducerError):
    """The producer instance cannot be used any more, because it is fenced or its state is unknown: close it.

    `fenced` says that the broker named a newer instance. The newer instance may be this node's own.
    """

    def __init__(self, reason: str, *, fenced: bool = False, refused_topic: str = "") -> None:
        """`refused_topic` is a topic that refused a record, and would refuse it again."""
        super().__init__(reason)
        self.fenced = fenced
        self.refused_topic = refused_topic


class FullError(OperatingError):
    """An append meets a bound (the queue, staged operations). Await `journal.room()`, or settle transactions first."""


class QueueFullError(FullError):
    """An append finds no room in the queue in time. Await `journal.room()`."""


class GateTimeoutError(OperatingError):
    """A shard's mark does not reach an activation's epoch in time. Start a worker, or see what stops the shard."""


class DeadlineError(OperatingError):
    """A wait has passed its deadline. The event that the caller waited for may still happen: look at what the message
    names, then call again. A message's body raises it if the local copy does not get it: check that a worker runs."""


class HangingTransactionError(DeadlineError):
    """A Kafka transaction stays open in front of records that must be read. Let it end, or abort it with Kafka's tools:
    docs/OPERATIONS.md, "A transaction that hangs"."""


class StaleReadError(OperatingError):
    """Kafka answers a read with less than it has acknowledged: a deposed leader answers, or records are lost. Nothing
    is decided from such a read; it is made again."""


class TopicError(OperatingError):
    """A topic is missing or not as the journal needs it. The message has the command that mends it."""

    faults: Sequence[Mapping[str, object]] = ()
    """The faults of each topic of a journal, for JSON; empty where one text says all."""


class NoJournalError(TopicError):
    """There is no journal of this name on these brokers. Run `init`, or mend the name or the addresses."""


class LocalStorageError(OperatingError):
    """A local RocksDB cannot be opened, written or read: make room on the disk, check permissions and other processes.
    A store whose index of references raises it again and again has lost a write: end the store and activate anew."""


class LocalDamageError(LocalStorageError):
    """Files of a local RocksDB cannot be read any more. A copy is then built anew; if it happens again, look at the
    disk."""


class ActiveNodeError(OperatingError):
    """A command that appends finds a live active node, or `destroy` finds a node or worker. Stop it, or ask that node
    with --node; the last resort of a command that appends is --take-over."""


class NotActiveError(OperatingError):
    """The node that was asked through its control socket is not the active one. The message names the active node, if
    it is known."""


class NodeSocketError(OperatingError):
    """No running node answers `--node` through its control socket, or a node cannot open its own."""


class DescriptorsError(OperatingError):
    """A process that starts may have fewer files and connections open than it needs. The message says how many: raise
    `ulimit -n`, or LimitNOFILE of the service."""


class OutputError(OperatingError):
    """A command's standard output is closed, or its disk is full. All that the command did before stays done: check it
    before you call the command again."""


class EmbeddedKafkaError(OperatingError):
    """The embedded Apache Kafka does not start: Java is missing or old, a port is taken, a directory is damaged. The
    message says what to do."""


class MissingExtraError(OperatingError):
    """An optional dependency is not installed. The message has the command that installs it."""


class AgentError(OperatingError):
    """An agent that a user wrote has failed: it raised an error, returned records that cannot be sent or that Kafka
    refuses, or took too long. The message names the agent and the shard. The worker will give the agent the same
    operations again: none of them counts as delivered."""


class ReopenError(OperatingError):
    """What the worker knows of an agent's session may be wrong. The worker opens the session anew at once."""


class RouteStopError(OperatingError):
    """A route cannot send a message, and the route's policy is `fail` or its topic is not available. The shard stops:
    it has checkpointed everything before the frame at `offset`, and does not apply that frame.

    The error's text has the commands that let the shard go on. `retried` says that the worker tries again by itself.
    """

    def __init__(self, reason: str, *, offset: int, retried: bool) -> None:
        super().__init__(reason)
        self.offset = offset
        self.retried = retried


class WebPortError(OperatingError):
    """A service's web server cannot listen at the address that it was given. Choose another port."""


class NotTakenInError(OperatingError):
    """Records of a source are known not to be in the journal, and their offsets are not committed. Their completion
    raises it; consume again from the committed offsets."""


class OvertakenError(OperatingError):
    """The reason for which a node began to activate is gone, and the node has fenced nobody yet. The node decides again
    what to do."""


class DemoError(OperatingError):
    """A process of the demo has ended too early. Its logs say why."""


# ---- caller's mistake: nothing was changed ------------------------------------------------------------------


class CallerError(JournalError):
    """The call is not allowed. Nothing was changed."""


class ConfigError(CallerError):
    """A setting is missing, malformed or contradicts another: mend it. `kafka-journal settings` prints all settings."""


class SelectorError(ConfigError):
    """A text is not a selector. `position` is the first character that does not fit, counted from 0."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        near = text[position : position + 20]
        place = f"character {position + 1}, at {near!r}" if near else "its end"
        super().__init__(f"{reason} (selector {text[:200]!r}, {place})")
        self.position = position


class InvalidOperationError(CallerError):
    """A call has an argument out of range (id, kind, subject, data size, an empty name, a priority above 9), or more at
    once than a group holds."""


class StateError(CallerError):
    """The journal or store is not in a state that allows the call: an append before it is active, a second activation,
    an acquire while the node may hand out nothing, a commit while a large message is on its way into the
    transaction."""


class ClosedError(StateError):
    """The journal is closed. Calls raise it, and so do the completions of operations that were not sent before the
    close; those operations are not in the journal. Open and activate anew."""


class CallbackError(CallerError):
    """A completion's callback makes a call that may wait (for a store, another completion, a journal's close). The
    callback may run in the very thread that the call waits for: make the call in another thread."""


class AmqpPeerError(CallerError):
    """Bytes of an AMQP peer are not what the specification asks for. The engine ends their connection with `condition`;
    whoever decodes a part of a message rejects the message with it."""

    def __init__(self, condition: str, reason: str) -> None:
        super().__init__(reason)
        self.condition = condition


class RecordExistsError(CallerError):
    """An add names the id of a record that lives. Take a new id."""


class RecordMissingError(CallerError):
    """An update or delete names the id of no record that lives. Treat the record as deleted."""


class LockedError(CallerError):
    """Another open or prepared transaction holds what the operation needs, until that transaction is settled.
    `kafka-journal tx list` shows those in doubt."""


class TransactionUnknownError(CallerError):
    """A prepare, commit or rollback names a transaction that is neither open nor prepared: it was settled, or ended
    with its node."""


class TransactionPreparedError(CallerError):
    """An operation or a second prepare names a transaction that is prepared already."""


class RolledBackError(CallerError):
    """The operation's transaction was rolled back. Completions of its operations raise it."""


class IdsExhaustedError(CallerError):
    """A virtual shard has no sequence left, or an id space that callers choose from is used up. Take ids of another
    virtual shard, or activate anew."""


class StoreError(CallerError):
    """The root of what the message store refuses; nothing was changed. The store raises it itself where the call must
    be mended: a queue of another address, one queue or message twice, messages of several addresses, an id that is
    taken or of another virtual shard, an unknown binding, a message to delete that queues have."""


class AddressMissingError(StoreError):
    """An address does not exist. Create it first."""


class AddressExistsError(StoreError):
    """An address that is to be created exists, or a transaction creates or destroys it: use it, or settle the
    transaction."""


class AddressInUseError(StoreError):
    """An address that is to be destroyed still has queues, or a transaction stores messages there or creates or
    destroys its queues. Destroy the queues first, or settle the transaction."""


class QueueMissingError(StoreError):
    """A queue does not exist, or is not committed yet. Create it first."""


class QueueExistsError(StoreError):
    """A queue or durable subscription that is to be created exists, or a transaction creates or destroys it: use it, or
    settle the transaction."""


class QueueInDoubtError(StoreError):
    """Transactions bind a queue that is to be destroyed, or hold its messages, or records of a source are on their way
    to it. Settle them first (`kafka-journal tx list`), and try again."""


class MessageMissingError(StoreError):
    """A message is not there, or not in that queue any more: it was acknowledged, for example. Treat it as done.

    `message` is its id. A call for many messages changed none of them: leave this one out, and try again.
    """

    def __init__(self, reason: str, message: int = 0) -> None:
        super().__init__(reason)
        self.message = message


class MessageExpiredError(MessageMissingError):
    """A message that is to be acquired has expired, and nobody holds it. `expire` settles it."""


class MessageHeldError(StoreError):
    """Another holder has acquired a message, a transaction has locked it, or it is not due yet.

    `message` is its id. A call for many messages changed none of them: leave this one out, and try again.
    """

    def __init__(self, reason: str, message: int = 0) -> None:
        super().__init__(reason)
        self.message = message


class MessageTooLargeError(StoreError):
    """A body is larger than `message_bytes_max`. Refuse it to the producer."""


class DuplicateMessageError(StoreError):
    """An address has seen a message's duplicate-detection id. Wait for `flush()`, then tell the producer that its
    message is stored. In a transaction, roll back.

    `duplicate_id` is that id. If `tx` is not 0, a message with this id waits for the outcome of that transaction, and
    the producer has to try again later. A call for many messages sent none of them: leave this one out, and try again.
    """

    def __init__(self, reason: str, duplicate_id: bytes = b"", tx: int = 0) -> None:
        super().__init__(reason)
        self.duplicate_id = duplicate_id
        self.tx = tx


class XidError(StoreError):
    """An xid has parts of a wrong size, is in use, is unknown, or is not in the state that the call needs. `code` is
    X/Open's; act as X/Open says."""

    def __init__(self, reason: str, *, code: int) -> None:
        """`code` is X/Open's: XAER_NOTA -4, XAER_INVAL -5, XAER_PROTO -6, XAER_DUPID -8, XAER_OUTSIDE -9 and so on."""
        super().__init__(reason)
        self.code = code


class RepairError(CallerError):
    """A `repair` or `routes resume` names an offset at which no shard is stopped, or rows that need no mending or
    cannot be mended. The message gives the state of the shard."""


class TrimError(CallerError):
    """`trim` may not delete what it was asked to: there is no archive (`spark archive`, or --without-archive), or the
    tables differ from the WAL (`verify`)."""


class ArchiveError(CallerError):
    """An archive belongs to another journal, or another job writes to it: name another one, or end that job."""


class ScriptError(CallerError):
    """A line of a script that `apply` reads is no operation. `line` is its number."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line


# ---- corruption ----------------------------------------------------------------------------------------------


class CorruptionError(JournalError):
    """A topic or a local copy holds what it must not hold. The message names the place; nothing is skipped in silence.

    Whoever reads the place raises it (worker, replica, load). Look at the bytes, then `kafka-journal repair skip`.
    """

    def __init__(self, reason: str, *, topic: str = "", partition: int = -1, offset: int = -1) -> None:
        place = f"{topic}[{partition}]@{offset}: " if topic else ""
        super().__init__(place + reason)
        self.reason = shortened(reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class FrameError(CorruptionError):
    """WAL bytes are not a frame of this journal (magic, format, uuid, counts, an impossible operation):
    docs/OPERATIONS.md, "When a shard stops"."""


class FormerFrameError(FrameError):
    """A frame is of a release before 0.1.0, which wrote operations one by one. No reader passes over it: destroy the
    journal and make it anew."""


class GapError(CorruptionError):
    """A frame does not follow its predecessor, or the log starts behind the first frame that is needed: frames are
    lost. docs/OPERATIONS.md, "When a shard stops"."""


class ControlLostError(CorruptionError):
    """The control rows lack something that the WAL or the tables prove was written, and a read after an acknowledged
    write confirms it. `kafka-journal repair control` writes the rows anew: docs/OPERATIONS.md, "When control rows are
    lost"."""


class RowError(CorruptionError):
    """Bytes of a table or control row do not parse as the type that their key names. `verify` names a table's rows
    (docs/OPERATIONS.md, "When a table is not what its marks say"), `repair control` those of the control topic."""


class CountError(CorruptionError):
    """A load finds other numbers of rows than the marks say, in a copy that was just built from the topic. So the table
    itself has lost rows, or deleted rows are back. `kafka-journal verify -j NAME` names them: docs/OPERATIONS.md, "When
    a table is not what its marks say". A `LocalJournal` raises this error for a damaged directory: restore it from a
    backup, because there is no other copy."""


# ---- fencing and unknown outcomes ----------------------------------------------------------------------------


class FencedError(JournalError):
    """Another node has taken the journal over. Every later call raises it; step down and hand out nothing more."""

    def __init__(self, reason: str, *, epoch: int = 0) -> None:
        super().__init__(reason)
        self.epoch = epoch


class OutcomeUnknownError(JournalError):
    """A group was sent, and its fate could not be learned in time. Activate again: the load shows it whole or not at
    all."""


class ChainError(OutcomeUnknownError):
    """A store of a chain fails. Every later call raises it too. `store` names it; the cause says why.

    The operation may be in some stores and not in others. Close the chain: the first store has the valid state.
    """

    def __init__(self, store: str, reason: JournalError) -> None:
        super().__init__(f"{store}: {type(reason).__name__}: {reason}")
        self.store = store
