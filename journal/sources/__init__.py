"""The way in: records of Kafka topics become messages of the store, by the active node.

positions   where each partition goes on, and what stops a source       pure
starts      where one begins
identities  topics that were deleted and made anew
consumer    reads assigned partitions of many topics
requests    what waits for a reply, and finds it
stops       sources that are stopped, and having them go on
letters     dead-letter topics, and what they take
batch       records -> messages, dead letters and offsets, by each source's policy
sizing      how much goes into a batch                                 pure
taking      batches on their way into the journal
renewal     offsets that do not change, committed again
patience    when requests are given up
lags        how far the sources are behind
loop        positions, consume, take in, commit, begin again: one thread, one activation
reporting   how they stand, to the control rows
service     starts and ends the loop with an activation, for a node
"""
