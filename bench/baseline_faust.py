"""Measures Faust over the records of the baseline: stock agents, a stock GlobalTable, and an agent over frames.

Each measurement is a worker process of its own (`python -m bench.baseline_faust WHAT BOOTSTRAP TOPIC COUNT DIRECTORY`)
over a filled topic; it writes the seconds from the first event to the last to DIRECTORY/seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import faust
from confluent_kafka import Producer
from rocksdict import Options, Rdict, WriteBatch

from bench.baseline_rates import FRAME_OPERATIONS
from bench.baseline_support import Figure, new_topic
from bench.baseline_transactions import DATA_BYTES, TIMEOUT_S, new_producer
from bench.plain_frames import frame_of_adds, operations_in

RUN_TIMEOUT_S = 300.0
SECONDS_FILE = "seconds"
LABELS = {
    "raw": "stock Faust agent, raw events, no table",
    "table": "stock Faust agent writing a stock GlobalTable (rocksdict)",
    "frames": "Faust agent over frames of 500, one WriteBatch a frame, rows produced by confluent-kafka",
}


def measure_faust(bootstrap: str, what: str, operations: int, rounds: int) -> Figure:
    rates = []
    for _ in range(rounds):
        topic = new_topic(bootstrap, 1)
        records = fill(bootstrap, topic, what, operations)
        with tempfile.TemporaryDirectory() as directory:
            command = [sys.executable, "-m", "bench.baseline_faust", what, bootstrap, topic, str(records), directory]
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
            seconds = Path(directory, SECONDS_FILE)
            if not seconds.exists():
                raise RuntimeError(f"the Faust worker failed:\n{done.stderr[-3000:]}")
            rates.append(operations / float(seconds.read_text(encoding="ascii")))
    return Figure(LABELS[what], "operations_per_s", rates)


def fill(bootstrap: str, topic: str, what: str, operations: int) -> int:
    """Writes the operations as single records, or in frames; returns the number of records."""
    producer = new_producer(bootstrap, **{"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    data = bytes(DATA_BYTES)
    if what != "frames":
        for number in range(operations):
            producer.produce(topic, data, key=number.to_bytes(8, "big"), partition=0)
        producer.flush(TIMEOUT_S)
        return operations
    for start in range(0, operations, FRAME_OPERATIONS):
        producer.produce(topic, frame_of_adds(range(start, start + FRAME_OPERATIONS), data), partition=0)
    producer.flush(TIMEOUT_S)
    return operations // FRAME_OPERATIONS


def make_app(bootstrap: str, topic: str, directory: str) -> faust.App:
    return faust.App(
        f"baseline-{topic}",
        broker=f"kafka://{bootstrap}",
        datadir=directory,
        store="rocksdb://",
        web_enabled=False,
        topic_replication_factor=1,
        topic_partitions=1,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        value_serializer="raw",
        key_serializer="raw",
    )


def finish(began: float, directory: str) -> None:
    """Writes the seconds and ends the process: a worker's own shutdown takes longer than what was measured."""
    Path(directory, SECONDS_FILE).write_text(str(time.perf_counter() - began), encoding="ascii")
    os._exit(0)


def add_raw_agent(app: faust.App, topic: str, count: int, directory: str) -> None:
    @app.agent(app.topic(topic, value_type=bytes))
    async def consume(stream: faust.StreamT[bytes]) -> None:
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == 1:
                began = time.perf_counter()
            if seen == count:
                finish(began, directory)


def add_table_agent(app: faust.App, topic: str, count: int, directory: str) -> None:
    table = app.GlobalTable("rows", partitions=1, key_type=bytes, value_type=bytes, options={"driver": "rocksdict"})

    @app.agent(app.topic(topic, value_type=bytes))
    async def consume(stream: faust.StreamT[bytes]) -> None:
        seen = 0
        async for key, value in stream.items():
            seen += 1
            if seen == 1:
                began = time.perf_counter()
            table[key] = value
            if seen == count:
                finish(began, directory)


def add_frame_agent(app: faust.App, topic: str, count: int, bootstrap: str, directory: str) -> None:
    database = Rdict(f"{directory}/rows", Options(raw_mode=True))
    rows_topic = new_topic(bootstrap, 1, **{"cleanup.policy": "compact"})
    producer = new_producer(bootstrap, **{"linger.ms": 5, "queue.buffering.max.messages": 1_000_000})

    @app.agent(app.topic(topic, value_type=bytes))
    async def consume(stream: faust.StreamT[bytes]) -> None:
        seen = 0
        async for raw in stream:
            seen += 1
            if seen == 1:
                began = time.perf_counter()
            apply_frame(raw, database, producer, rows_topic)
            if seen == count:
                producer.flush(TIMEOUT_S)
                finish(began, directory)


def apply_frame(raw: bytes, database: Rdict, producer: Producer, rows_topic: str) -> None:
    batch = WriteBatch(raw_mode=True)
    for _, record_id, _, data in operations_in(raw):
        key = record_id.to_bytes(8, "big")
        batch.put(key, data)
        producer.produce(rows_topic, data, key, 0)
    database.write(batch)
    producer.poll(0)


def main(what: str, bootstrap: str, topic: str, count: int, directory: str) -> None:
    app = make_app(bootstrap, topic, directory)
    if what == "raw":
        add_raw_agent(app, topic, count, directory)
    elif what == "table":
        add_table_agent(app, topic, count, directory)
    else:
        add_frame_agent(app, topic, count, bootstrap, directory)
    faust.Worker(app, loglevel="warning", quiet=True).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
