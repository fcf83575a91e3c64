"""Routes in the worker: messages that were added are sent to the topics of their routes, in the transaction of their
checkpoint.

worker_routes   a worker's routes, and their reports
outgoing        one shard's routes: added messages become records
targets         the topics that routes send to, and their faults
counts          what the routes did in a shard
replay          sends the records of a route for a range once more, on demand
replay_history  the messages that took effect in a shard, read from the WAL
replay_range    the range of a replay
"""
