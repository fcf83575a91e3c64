"""Messages to Kafka topics and back: the decisions, without I/O, clock or randomness.

`Router` turns a message that was added into the records its routes send; `Sources` turns a source's record into a
message. The worker and the active node put what they decide into the Kafka transactions that exist anyway.
docs/ROUTING.md has the configuration, the headers and the selector's grammar.
"""
