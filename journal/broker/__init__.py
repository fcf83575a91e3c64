"""The AMQP 1.0 front end of an active node: unmodified clients send to and receive from the message store.

    server.py       listens, and ends all connections when the node is no longer active
    connection.py   one socket: bytes to the engine, its events to links, and back
    producer.py     links that clients send on           consumer.py   links that clients receive on
    coordinator.py  transactions                         addresses.py  addresses, queues, creation on demand
    messages.py     messages of AMQP as messages of the store, and back
    listening.py    accepts sockets, with TLS            security/     who may connect, and what they may do

All of it runs in one event loop in a thread of its own. Nothing here waits: the store accepts or refuses at once, and
what has become durable is told from the writer's thread (`loop_calls.py`).
"""
