"""Sources: the active node consumes records of Kafka topics, and takes them in as messages of the store.

positions   where each partition continues, and what stops a source     pure
starts      where a partition without a committed offset begins
identities  finds topics that were deleted and created again
consumer    reads assigned partitions of many topics
requests    messages that wait for a reply
stops       stopped sources, and how an operator resumes them
letters     dead-letter topics and their limits
batch       records -> messages, dead letters and offsets, by each source's policy
sizing      how much goes into a batch                                 pure
taking      batches on their way into the journal
renewal     commits unchanged offsets again, so that Kafka keeps them
patience    when requests are given up
lags        how far the sources are behind
loop        the thread of one activation: consume, take in, commit, begin again
reporting   writes the sources' states to the control rows
service     starts and ends the loop with an activation, for a node
"""
