"""The way in: records of Kafka topics become messages of the store, by the active node.

positions   where each partition goes on, and what stops a source       pure
consumer    reads assigned partitions of many topics
batch       records -> messages, dead letters and offsets, by each source's policy
loop        positions, consume, take in, commit, begin again: one thread, one activation
service     starts and ends the loop with an activation, for a node
"""
