"""`kafka-journal users`: what each command makes of the file, prints and refuses. No password is shown anywhere."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from journal.broker.security.passwords import is_password
from journal.broker.security.permissions import Action, Permissions
from journal.broker.security.users import User
from journal.broker.security.users_file import change_users, read_users
from journal.cli.main import app

PASSWORD = "correct horse"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def run(file: Path, *words: str, typed: str = "") -> Result:
    """With few iterations, for speed."""
    env = {"KAFKA_JOURNAL_AMQP__SECURITY__SCRAM_ITERATIONS": "4096"}
    return CliRunner().invoke(app, ["users", *words, "--file", str(file)], input=typed, env=env)


def add(file: Path, *names: str) -> None:
    for name in names:
        assert run(file, "add", name, typed=f"{PASSWORD}\n").exit_code == 0


def permissions(file: Path, name: str) -> dict[str, list[Action]]:
    granted = read_users(file).users[name].permissions.granted
    return {pattern: [each for each in Action if each in actions] for pattern, actions in granted.items()}


def fits(file: Path, name: str, password: str) -> bool:
    verifier, known = read_users(file).verifier(name, "SCRAM-SHA-256")
    return known and is_password(password, "sha256", verifier)


def test_the_first_user_makes_the_file_which_its_owner_alone_may_read(file: Path) -> None:
    added = run(file, "add", "alice", "--json", typed=f"{PASSWORD}\n")
    assert json.loads(added.stdout) == {"user": "alice", "action": "add"}
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    assert fits(file, "alice", PASSWORD)
    verifiers = read_users(file).users["alice"].verifiers
    assert {name: each.iterations for name, each in verifiers.items()} == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
    assert PASSWORD not in added.output + file.read_text()


def test_a_password_is_read_from_a_file(file: Path, tmp_path: Path) -> None:
    add(file, "alice")
    (tmp_path / "password").write_text("of the file\n")
    assert run(file, "passwd", "alice", "--password-file", str(tmp_path / "password")).exit_code == 0
    assert fits(file, "alice", "of the file")
    assert run(file, "passwd", "alice", "--password-file", "-", typed="of the pipe\n").exit_code == 0
    assert fits(file, "alice", "of the pipe")
    missing = run(file, "passwd", "alice", "--password-file", str(tmp_path / "none"))
    assert (missing.exit_code, "the password cannot be read" in missing.stderr) == (2, True)


def test_a_user_without_a_password_has_no_keys(file: Path) -> None:
    assert run(file, "add", "carol", "--no-password").exit_code == 0
    assert read_users(file).users["carol"].verifiers == {}


def test_permissions_are_granted_shown_and_revoked(file: Path) -> None:
    add(file, "alice")
    assert run(file, "grant", "alice", "orders.#", "send", "consume").stdout == "alice may send, consume orders.#\n"
    run(file, "grant", "alice", "orders.#", "browse")
    run(file, "grant", "alice", "news", "consume")
    assert permissions(file, "alice") == {"orders.#": ["send", "consume", "browse"], "news": ["consume"]}
    shown = run(file, "list")
    assert "send, consume, browse orders.#; consume news" in shown.stdout
    assert json.loads(run(file, "list", "--json").stdout)["users"] == [
        {"user": "alice", "password": True, "roles": [], "permissions": permissions(file, "alice")}
    ]
    run(file, "revoke", "alice", "orders.#", "send")
    assert permissions(file, "alice")["orders.#"] == ["consume", "browse"]
    run(file, "revoke", "alice", "orders.#")
    assert permissions(file, "alice") == {"news": ["consume"]}
    again = run(file, "revoke", "alice", "orders.#")
    assert (again.exit_code, "alice has no such permission on orders.#" in again.stderr) == (2, True)


def test_a_role_is_made_by_its_first_permission_and_goes_with_its_last(file: Path) -> None:
    early = run(file, "add", "alice", "--role", "clerks", "--no-password")
    assert (early.exit_code, "there is no role 'clerks'" in early.stderr) == (2, True)
    run(file, "grant", "--role", "clerks", "orders.#", "send")
    run(file, "grant", "--role", "readers", "news", "consume")
    assert run(file, "add", "alice", "--role", "clerks", "--no-password").exit_code == 0
    assert run(file, "roles", "alice", "clerks", "readers", "--json").exit_code == 0
    users = read_users(file)
    assert users.users["alice"].roles == ("clerks", "readers")
    assert users.allow("alice", Action.SEND, "orders.eu")
    assert users.allow("alice", Action.CONSUME, "news")
    run(file, "revoke", "--role", "clerks", "orders.#")
    assert read_users(file).users["alice"].roles == ("readers",)
    assert run(file, "roles", "alice").stdout == "user alice has no roles\n"
    assert read_users(file).users["alice"].roles == ()


def test_a_user_is_removed_with_all_permissions(file: Path) -> None:
    add(file, "alice", "bob")
    run(file, "grant", "alice", "#", "send")
    assert run(file, "remove", "alice").stdout == "user alice is removed\n"
    assert list(read_users(file).users) == ["bob"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "alice"], "there is a user alice already"),
        (["add", "bob", "--no-password", "--password-file", "x"], "contradict each other"),
        (["add", ""], "is no name"),
        (["add", "a\x07"], "not allowed in names"),
        (["add", "x" * 256], "is no name"),
        (["passwd", "bob"], "there is no user 'bob'"),
        (["remove", "bob"], "there is no user 'bob'"),
        (["grant", "bob", "#", "send"], "there is no user 'bob'"),
        (["grant", "alice", "", "send"], "an address pattern is empty"),
        (["grant", "alice", "orders*", "send"], "stand for whole words"),
        (["grant", "alice", "#", "fly"], "'fly' is no action"),
        (["roles", "alice", "none"], "there is no role 'none'"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(file: Path, words: list[str], said: str) -> None:
    add(file, "alice")
    before = file.read_bytes()
    refused = run(file, *words, typed="secret word\n")
    assert (refused.exit_code, said in " ".join(refused.stderr.split())) == (2, True), refused.stderr
    assert "secret word" not in refused.output
    assert file.read_bytes() == before


@pytest.mark.parametrize("typed", ["", "\n", "\x07\n"])
def test_a_password_that_cannot_be_used_is_refused(file: Path, typed: str) -> None:
    assert run(file, "add", "alice", typed=typed).exit_code == 2
    assert not file.exists()


def test_a_file_that_others_may_read_is_not_changed(file: Path) -> None:
    add(file, "alice")
    file.chmod(0o644)
    refused = run(file, "grant", "alice", "#", "send")
    assert (refused.exit_code, "chmod 600" in refused.stderr) == (2, True)


def test_a_file_in_no_directory_is_refused(tmp_path: Path) -> None:
    refused = run(tmp_path / "none" / "users.json", "add", "alice", typed="secret word\n")
    assert (refused.exit_code, "cannot be written" in refused.stderr) == (2, True)


def test_the_file_is_the_one_of_the_settings(file: Path) -> None:
    env = {"KAFKA_JOURNAL_AMQP__SECURITY__USERS_FILE": str(file)}
    assert CliRunner().invoke(app, ["users", "add", "carol", "--no-password"], env=env).exit_code == 0
    assert list(read_users(file).users) == ["carol"]
    unnamed = CliRunner().invoke(app, ["users", "list"])
    assert (unnamed.exit_code, "no file of users is named" in unnamed.stderr) == (2, True)


def test_changes_at_once_are_all_kept(file: Path) -> None:
    def add_one(name: str) -> None:
        change_users(file, lambda users: users.with_user(User(name, (), Permissions({}), {})))

    names = [f"user-{number}" for number in range(20)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add_one, names))
    assert sorted(read_users(file).users) == sorted(names)
