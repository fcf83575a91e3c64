"""The journal as data for Spark.

    session    a SparkSession with the packages that a job needs, and Spark's errors as the journal's
    read       the data source `kafka_journal` and the functions over it: WAL, table topic, archive
    stored     what jobs write: files of an archive, tables, manifests
    archive, replay, tables, audit, fold, analytics    the jobs

Python's workers of Spark read the topics with the journal's own Kafka clients and decode whole fetches as Arrow arrays;
what is done with a row after that is a Spark expression.
"""
