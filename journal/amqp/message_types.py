"""Described types of parts 3 and 4 of the specification: outcomes, termini, a message's header and properties, and
transactions. The error type of part 2 stands here too, because an outcome carries it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from journal.amqp.described import (
    ANNOTATIONS,
    ANY,
    BINARY,
    BOOLEAN,
    FIELDS,
    MESSAGE_ID,
    STRING,
    SYMBOL,
    SYMBOLS,
    TIMESTAMP,
    UBYTE,
    UINT,
    ULONG,
    Composite,
    described,
    one_of,
)


@described(0x1D, "amqp:error:list")
class ErrorCondition(Composite):
    """An error: its condition (conditions.py) and a text."""

    condition: Annotated[str, SYMBOL]
    description: Annotated[str | None, STRING] = None
    info: Annotated[Mapping[str, Any] | None, FIELDS] = None


# ---- states of a delivery --------------------------------------------------------------------------------------------


@described(0x23, "amqp:received:list")
class ReceivedState(Composite):
    """The part of a delivery that has arrived. It is no outcome."""

    section_number: Annotated[int, UINT]
    section_offset: Annotated[int, ULONG]


@described(0x24, "amqp:accepted:list")
class AcceptedState(Composite):
    """The receiver has taken the message over."""


@described(0x25, "amqp:rejected:list")
class RejectedState(Composite):
    """The message is invalid for the receiver."""

    error: Annotated[ErrorCondition | None, one_of("error", ErrorCondition)] = None


@described(0x26, "amqp:released:list")
class ReleasedState(Composite):
    """The message was not processed, and may go to another receiver as it is."""


@described(0x27, "amqp:modified:list")
class ModifiedState(Composite):
    """The message was not processed, and is changed before it is delivered again."""

    delivery_failed: Annotated[bool, BOOLEAN] = False
    undeliverable_here: Annotated[bool, BOOLEAN] = False
    message_annotations: Annotated[Mapping[Any, Any] | None, ANNOTATIONS] = None


@described(0x33, "amqp:declared:list")
class DeclaredState(Composite):
    """The outcome of a declare: the new transaction's id."""

    txn_id: Annotated[bytes, BINARY]


OUTCOME = one_of("outcome", AcceptedState, RejectedState, ReleasedState, ModifiedState, DeclaredState)


@described(0x34, "amqp:transactional-state:list")
class TransactionalState(Composite):
    """A state inside a transaction: a transfer names the transaction, a disposition names the outcome too."""

    txn_id: Annotated[bytes, BINARY]
    outcome: Annotated[Any, OUTCOME] = None


DELIVERY_STATE = one_of("delivery-state", *OUTCOME.accepts, ReceivedState, TransactionalState)
State = (
    ReceivedState | AcceptedState | RejectedState | ReleasedState | ModifiedState | DeclaredState | TransactionalState
)


# ---- transactions ----------------------------------------------------------------------------------------------------


@described(0x31, "amqp:declare:list")
class Declare(Composite):
    """The body of a message to a coordinator that asks for a new transaction."""

    global_id: Annotated[Any, ANY] = None


@described(0x32, "amqp:discharge:list")
class Discharge(Composite):
    """The body of a message to a coordinator that ends a transaction: `fail` rolls it back."""

    txn_id: Annotated[bytes, BINARY]
    fail: Annotated[bool, BOOLEAN] = False


# ---- termini ---------------------------------------------------------------------------------------------------------


@described(0x28, "amqp:source:list")
class SourceTerminus(Composite):
    """The node that a link's messages come from. `durable` is 0 none, 1 configuration, 2 unsettled state."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int, UINT] = 0
    expiry_policy: Annotated[str, SYMBOL] = "session-end"
    timeout: Annotated[int, UINT] = 0
    dynamic: Annotated[bool, BOOLEAN] = False
    dynamic_node_properties: Annotated[Mapping[str, Any] | None, FIELDS] = None
    distribution_mode: Annotated[str | None, SYMBOL] = None
    filter: Annotated[Mapping[str, Any] | None, FIELDS] = None
    default_outcome: Annotated[Any, OUTCOME] = None
    outcomes: Annotated[Sequence[str], SYMBOLS] = ()
    capabilities: Annotated[Sequence[str], SYMBOLS] = ()


@described(0x29, "amqp:target:list")
class TargetTerminus(Composite):
    """The node that a link's messages go to. No address at all is the anonymous terminus."""

    address: Annotated[str | None, STRING] = None
    durable: Annotated[int, UINT] = 0
    expiry_policy: Annotated[str, SYMBOL] = "session-end"
    timeout: Annotated[int, UINT] = 0
    dynamic: Annotated[bool, BOOLEAN] = False
    dynamic_node_properties: Annotated[Mapping[str, Any] | None, FIELDS] = None
    capabilities: Annotated[Sequence[str], SYMBOLS] = ()


@described(0x30, "amqp:coordinator:list")
class CoordinatorTerminus(Composite):
    """The target of a link that controls transactions."""

    capabilities: Annotated[Sequence[str], SYMBOLS] = ()


@described(0x2B, "amqp:delete-on-close:list")
class DeleteOnClose(Composite):
    """The lifetime policy of a temporary node that goes with its link."""


@described(0x2C, "amqp:delete-on-no-links:list")
class DeleteOnNoLinks(Composite):
    """The lifetime policy of a temporary node that goes with its last link."""


@described(0x2D, "amqp:delete-on-no-messages:list")
class DeleteOnNoMessages(Composite):
    """The lifetime policy of a temporary node that goes with its link once it is empty."""


@described(0x2E, "amqp:delete-on-no-links-or-messages:list")
class DeleteOnNoLinksOrMessages(Composite):
    """The lifetime policy of a temporary node that goes once it has neither links nor messages."""


SOURCE = one_of("source", SourceTerminus)
TARGET = one_of("target", TargetTerminus, CoordinatorTerminus)


# ---- sections of a message that are lists ----------------------------------------------------------------------------


@described(0x70, "amqp:header:list")
class MessageHeader(Composite):
    """A message's header: how it is delivered. Each broker writes it anew. `ttl` is in milliseconds."""

    durable: Annotated[bool, BOOLEAN] = False
    priority: Annotated[int, UBYTE] = 4
    ttl: Annotated[int | None, UINT] = None
    first_acquirer: Annotated[bool, BOOLEAN] = False
    delivery_count: Annotated[int, UINT] = 0


@described(0x73, "amqp:properties:list")
class MessageProperties(Composite):
    """A message's standard properties, which nobody changes on its way."""

    message_id: Annotated[Any, MESSAGE_ID] = None
    user_id: Annotated[bytes | None, BINARY] = None
    to: Annotated[str | None, STRING] = None
    subject: Annotated[str | None, STRING] = None
    reply_to: Annotated[str | None, STRING] = None
    correlation_id: Annotated[Any, MESSAGE_ID] = None
    content_type: Annotated[str | None, SYMBOL] = None
    content_encoding: Annotated[str | None, SYMBOL] = None
    absolute_expiry_time: Annotated[int | None, TIMESTAMP] = None
    creation_time: Annotated[int | None, TIMESTAMP] = None
    group_id: Annotated[str | None, STRING] = None
    group_sequence: Annotated[int | None, UINT] = None
    reply_to_group_id: Annotated[str | None, STRING] = None
