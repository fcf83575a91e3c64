"""Brokers with users, and files of users for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proton.utils import BlockingConnection

from journal.amqp.security_settings import SecuritySettings
from journal.amqp.settings import AmqpSettings
from journal.broker.security.permissions import Action, Permissions
from journal.broker.security.users import User, verifiers_of
from journal.broker.security.users_file import change_users
from tests.unit.broker.conftest import TIMEOUT_S, Broker

PASSWORD = "pencil"
VERIFIERS = verifiers_of(PASSWORD, 4096)
EVERYTHING = {"#": frozenset(Action)}


class UsersOfTest:
    """A file of users. Each has the same password."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, name: str, granted: dict[str, frozenset[Action]] | None = None, *, password: bool = True) -> None:
        """Add a user, who may do everything unless it is said otherwise; or change one."""
        permissions = Permissions(EVERYTHING if granted is None else granted)
        user = User(name, (), permissions, VERIFIERS if password else {})
        change_users(self.path, lambda users: users.with_user(user))

    def remove(self, name: str) -> None:
        change_users(self.path, lambda users: users.without_user(name))


@pytest.fixture
def users(tmp_path: Path) -> UsersOfTest:
    made = UsersOfTest(tmp_path / "users.json")
    made.add("alice")
    return made


Serve = Callable[..., Broker]


@pytest.fixture
def serve(tmp_path: Path, users: UsersOfTest) -> Iterator[Serve]:
    """Starts a broker with these users; arguments are settings of its security, and `amqp` those of AMQP."""
    running: list[Broker] = []

    def start(amqp: dict[str, Any] | None = None, **security: Any) -> Broker:
        settings = AmqpSettings(
            listen="127.0.0.1:0",
            security=SecuritySettings(users_file=users.path, **security),
            **(amqp or {}),
        )
        running.append(Broker(tmp_path / f"broker-{len(running)}", settings))
        return running[-1]

    yield start
    for broker in running:
        broker.close()


def connect(broker: Broker, user: str = "alice", password: str = PASSWORD, **more: Any) -> BlockingConnection:
    """proton with PLAIN, which it does without TLS only where it is told so."""
    given = {"allowed_mechs": "PLAIN", "allow_insecure_mechs": True, "timeout": TIMEOUT_S, **more}
    return BlockingConnection(broker.url, user=user, password=password, **given)
