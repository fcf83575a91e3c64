"""The way out: messages that were added, sent to the topics of their routes in their checkpoint's own transaction.

routes    a worker's routes: the topics known, what is reported
outgoing    one shard's: what happened, to records
targets     the topics as the cluster has them, and what is wrong with one
counts      what the routes did in a shard
replay      on demand: what a route sent for a range, once more
"""
