"""Readers of the journal's topics and of its archive, in the order in which data flow.

source, options, schemas, filters    which journal, what of it, with which columns
start, ranges, stream_reader         where reading begins and ends
data_source, range_reader            what Spark calls
range_rows, fetching, topic_records  what a task does: records of a range, as columns
decoding, wal_batches                values of the WAL -> operations, frames
row_decoding, row_batches            values of the table topic -> changes
shard_state, state_batches           the newest row of each key -> records, messages, transactions
frames, rows                         the same for records that Spark already holds, such as those of an archive
loading, readers, archived           DataFrames
"""
