"""The journal as data for Spark.

    packages       which packages go with which PySpark
    session        a SparkSession that has them, or an error that says what is missing
    chatter        where the JVM's output goes
    source         the journal's topics by Spark's own Kafka source; which journal it is
    wire           values <-> protobuf, in the JVM
    frames         WAL records -> operations, and what is no frame
    rows           table records -> records with their updates, transactions, marks; as a state or as changes
    store_columns  what the message store's kinds hold
    readers        all of it together: read_wal, read_table, read_transactions, stream_wal, stream_table

Nothing here opens a Kafka client or runs Python for a row: what is done with a row is a Spark expression.
"""
