"""An example of each command, which its help ends with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXAMPLES: Mapping[str, str] = {
    "kafka start": "kafka-journal kafka start --brokers 3",
    "kafka stop": "kafka-journal kafka stop",
    "kafka status": "kafka-journal kafka status --json",
    "kafka topic": "kafka-journal kafka topic landed --partitions 4 --config retention.ms=-1",
    "settings": "kafka-journal settings session",
    "init": "kafka-journal init -j orders -b kafka-1:9092,kafka-2:9092 --shards 8 --replication 3",
    "worker": "kafka-journal worker -j orders --standby",
    "node": "kafka-journal node -j orders --name a --with-worker",
    "node hand-over": "kafka-journal node hand-over -j orders --to b",
    "users add": "kafka-journal users add alice --file users.json",
    "users passwd": "kafka-journal users passwd alice --file users.json --password-file new-password",
    "users remove": "kafka-journal users remove alice --file users.json",
    "users list": "kafka-journal users list --file users.json",
    "users grant": "kafka-journal users grant alice 'orders.#' send consume --file users.json",
    "users revoke": "kafka-journal users revoke --role clerks 'orders.#' --file users.json",
    "users roles": "kafka-journal users roles alice clerks --file users.json",
    "up": "kafka-journal up -j orders",
    "queues": "kafka-journal queues -j orders",
    "queues create": "kafka-journal queues create orders/eu -j orders --address orders --deliveries-max 5",
    "queues change": "kafka-journal queues change orders/eu -j orders --deliveries-max 10 --node",
    "queues delete": "kafka-journal queues delete orders/eu -j orders",
    "queues pause": "kafka-journal queues pause orders/eu -j orders --node",
    "queues resume": "kafka-journal queues resume orders/eu -j orders --node",
    "queues purge": "kafka-journal queues purge orders/eu -j orders --node",
    "messages": "kafka-journal messages orders/eu -j orders --limit 20",
    "send": "kafka-journal send orders hello -j orders --create -p delay:long=20",
    "receive": "kafka-journal receive orders/eu -j orders --count 0",
    "explain": "kafka-journal explain 4398046511116 -j orders",
    "tx list": "kafka-journal tx list -j orders",
    "tx show": "kafka-journal tx show 4294967298 -j orders",
    "tx commit": "kafka-journal tx commit 7:payment:store -j orders --node",
    "tx rollback": "kafka-journal tx rollback 4294967298 -j orders",
    "tx forget": "kafka-journal tx forget 7:payment:store -j orders",
    "routes list": "kafka-journal routes list --config journal.toml",
    "routes test": "kafka-journal routes test --config journal.toml --address orders --header delay:long=20 --body hi",
    "routes status": "kafka-journal routes status -j orders",
    "routes resume": "kafka-journal routes resume 3 --skip 41822 -j orders",
    "routes resume-source": "kafka-journal routes resume-source incoming -j orders --node a",
    "routes replay": "kafka-journal routes replay landed --config journal.toml --from 2026-11-27T08:00:00Z --dry-run",
    "apply": "kafka-journal apply script.jsonl -j orders",
    "dump": "kafka-journal dump -j orders --now",
    "status": "kafka-journal status -j orders",
    "verify": "kafka-journal verify -j orders",
    "repair skip": "kafka-journal repair skip 3 41822 -j orders",
    "repair control": "kafka-journal repair control -j orders",
    "repair table": "kafka-journal repair table 3 --recount -j orders",
    "trim": "kafka-journal trim -j orders --dry-run",
    "destroy": "kafka-journal destroy rehearsal",
    "spark packages": "kafka-journal spark packages --delta",
    "spark check": "kafka-journal spark check",
    "spark read": "kafka-journal spark read table -j orders --limit 5",
    "spark archive": "kafka-journal spark archive -j orders --to /data/archive --once",
    "spark tables": "kafka-journal spark tables -j orders --to /data/orders --every-s 10",
    "spark replay": "kafka-journal spark replay -j rehearsal --source orders --from /data/archive --dry-run",
    "spark analytics": "kafka-journal spark analytics -j orders --window-s 60",
    "spark report": "kafka-journal spark report -j orders --to report.html",
    "demo": "kafka-journal demo --rows 20000",
}
"""By the names of a command."""


def end_with_examples(command: Any, name: str) -> Any:
    """The command, and all that are under it, with their examples at the end of their help."""
    if name in EXAMPLES:
        command.epilog = f"Example: {EXAMPLES[name]}"
    for part, under in getattr(command, "commands", {}).items():
        end_with_examples(under, f"{name} {part}")
    return command
