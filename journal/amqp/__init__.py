"""An AMQP 1.0 engine without I/O: bytes in and events out, commands in and bytes out.

`Connection` is the engine of one connection. `Connection.receive` takes the peer's bytes and returns events
(`events.py`); the caller answers them with commands of `Connection`, `AmqpSession`, `SenderLink` and `ReceiverLink`,
and takes what is to be sent with `Connection.bytes_to_send`. A new reader begins with `connection.py` and `events.py`.

    values.py, decoding.py, encoding.py         part 1 of the specification: the type system
    described.py                                described lists by table
    transport_types.py, message_types.py        the tables of parts 2 to 5
    sections.py, filters.py                     a message's sections; filters of a source
    frames.py, output.py, handshake.py          headers, frames, SASL
    states.py, channel.py, session.py, session_table.py     sessions
    links.py, sender.py, receiver.py            links
    transfers.py, dispatch.py, connection.py    what arrives, and the whole

Nothing here knows the store, and `journal.errors` is all that the engine imports of this project. The names below are
imported when a program asks for one, because every command reads the settings of AMQP, and few need the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal.lazy_names import lazy_names

if TYPE_CHECKING:
    from journal.amqp import conditions as conditions
    from journal.amqp import events as events
    from journal.amqp import message_types as message_types
    from journal.amqp import transport_types as transport_types
    from journal.amqp.connection import Connection as Connection
    from journal.amqp.limits import EngineLimits as EngineLimits
    from journal.amqp.receiver import ReceiverLink as ReceiverLink
    from journal.amqp.sender import OutgoingDelivery as OutgoingDelivery
    from journal.amqp.sender import SenderLink as SenderLink
    from journal.amqp.session import AmqpSession as AmqpSession
else:
    __getattr__, __dir__ = lazy_names(__name__, __file__)
