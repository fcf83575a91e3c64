"""`kafka-journal users` changes the file of users that AMQP clients log in as: users, roles, and their permissions.

It talks to nobody. A node that serves AMQP reads the file again at the next login. A password comes from a prompt,
from --password-file, or from standard input, and is in no argument and no log.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from journal.broker.security.permissions import Action, Permissions
from journal.broker.security.users import User, Users, require_name, verifiers_of
from journal.broker.security.users_file import change_users, granted_lists, read_users
from journal.cli.common import Chosen, JsonOption, journal_command, print_json, print_line
from journal.cli.standard_streams import note_done
from journal.cli.tables import print_table
from journal.config import Settings
from journal.errors import ConfigError, InvalidOperationError
from journal.patterns import parse_pattern

app = typer.Typer(no_args_is_help=True, help="Users of AMQP clients: who may log in, and what each may do.")

FileOption = Annotated[
    Path | None,
    typer.Option("--file", help="The file of users.", show_default="the setting amqp.security.users_file"),
]
NameArgument = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
PasswordFileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file", help="A file with the password and nothing else; - is standard input.", show_default="ask"
    ),
]
HolderArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name, or with --role the role's.")]
PatternArgument = Annotated[
    str, typer.Argument(help="Addresses: in orders.*.# the * is one word and # any number of words.")
]
RoleFlag = Annotated[bool, typer.Option("--role", help="NAME is a role. The first permission makes the role.")]


@app.command()
@journal_command
def add(
    chosen: Chosen,
    user: NameArgument,
    role: Annotated[
        list[str] | None, typer.Option("--role", help="A role of the user. Repeat the option for more.")
    ] = None,
    password_file: PasswordFileOption = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="The user logs in with a certificate alone, or is `anonymous`.")
    ] = False,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a user, and make the file if there is none. The user may do nothing until `users grant`."""
    settings = chosen.given()
    path = _path(settings, file)
    require_name(user)
    if no_password and password_file is not None:
        raise ConfigError("--no-password and --password-file contradict each other")
    if path.exists():
        _require_new(read_users(path), user)
    verifiers = {} if no_password else verifiers_of(_password(password_file), _iterations(settings))

    def change(users: Users) -> Users:
        _require_new(users, user)
        return users.with_user(User(user, tuple(role or ()), Permissions({}), verifiers))

    _change(path, change, {"user": user, "action": "add"}, f"user {user} is added", as_json=as_json)


@app.command()
@journal_command
def passwd(
    chosen: Chosen,
    user: NameArgument,
    password_file: PasswordFileOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a user a new password. Connections that exist stay."""
    settings = chosen.given()
    path = _path(settings, file)
    read_users(path).user(user)
    verifiers = verifiers_of(_password(password_file), _iterations(settings))

    def change(users: Users) -> Users:
        return users.with_user(users.user(user)._replace(verifiers=verifiers))

    _change(path, change, {"user": user, "action": "passwd"}, f"user {user} has a new password", as_json=as_json)


@app.command()
@journal_command
def remove(chosen: Chosen, user: NameArgument, file: FileOption = None, as_json: JsonOption = False) -> None:
    """Remove a user with all permissions. Connections that exist may then do nothing new."""
    path = _path(chosen.given(), file)
    said = {"user": user, "action": "remove"}
    _change(path, lambda users: users.without_user(user), said, f"user {user} is removed", as_json=as_json)


@app.command("list")
@journal_command
def list_users(chosen: Chosen, file: FileOption = None, as_json: JsonOption = False) -> None:
    """Show users and roles, and what each may do."""
    users = read_users(_path(chosen.given(), file))
    if as_json:
        print_json(
            {
                "users": [
                    {
                        "user": each.name,
                        "password": bool(each.verifiers),
                        "roles": list(each.roles),
                        "permissions": granted_lists(each.permissions),
                    }
                    for each in users.users.values()
                ],
                "roles": [{"role": name, "permissions": granted_lists(each)} for name, each in users.roles.items()],
            }
        )
        return
    rows = [
        (each.name, "user", "yes" if each.verifiers else "no", ", ".join(each.roles), _shown(each.permissions))
        for each in users.users.values()
    ]
    rows += [(name, "role", "", "", _shown(each)) for name, each in users.roles.items()]
    print_table("users", ("name", "kind", "password", "roles", "permissions"), rows)


@app.command()
@journal_command
def grant(
    chosen: Chosen,
    name: HolderArgument,
    pattern: PatternArgument,
    actions: Annotated[list[str], typer.Argument(metavar="ACTION...", help=", ".join(Action))],
    role: RoleFlag = False,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grant a user or role actions on the addresses of a pattern."""
    path = _path(chosen.given(), file)
    _require_pattern(pattern)
    granted = _actions(actions)
    said = {"name": name, "action": "grant", "pattern": pattern, "actions": [*_sorted(granted)]}

    def change(permissions: Permissions) -> Permissions:
        return permissions.with_grant(pattern, granted)

    text = f"{name} may {', '.join(_sorted(granted))} {pattern}"
    _change(path, lambda users: _with_permissions(users, name, change, role=role), said, text, as_json=as_json)


@app.command()
@journal_command
def revoke(
    chosen: Chosen,
    name: HolderArgument,
    pattern: PatternArgument,
    actions: Annotated[
        list[str] | None, typer.Argument(metavar="[ACTION...]", help=", ".join(Action), show_default="all")
    ] = None,
    role: RoleFlag = False,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back what was granted on a pattern. A role without permissions is gone, for its users too."""
    path = _path(chosen.given(), file)
    revoked = _actions(actions or [*Action])
    said = {"name": name, "action": "revoke", "pattern": pattern, "actions": [*_sorted(revoked)]}

    def change(permissions: Permissions) -> Permissions:
        if not permissions.granted.get(pattern, frozenset()) & revoked:
            raise InvalidOperationError(f"{name} has no such permission on {pattern}: `users list` shows all")
        return permissions.without_grant(pattern, revoked)

    text = f"{name} may not {', '.join(_sorted(revoked))} {pattern}"
    _change(path, lambda users: _with_permissions(users, name, change, role=role), said, text, as_json=as_json)


@app.command()
@journal_command
def roles(
    chosen: Chosen,
    user: NameArgument,
    role: Annotated[list[str] | None, typer.Argument(metavar="[ROLE...]", show_default="none")] = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a user these roles instead of those that it has."""
    path = _path(chosen.given(), file)
    given = tuple(role or ())
    said: dict[str, Any] = {"user": user, "action": "roles", "roles": [*given]}
    text = f"user {user} has {'the roles ' + ', '.join(given) if given else 'no roles'}"
    _change(path, lambda users: users.with_user(users.user(user)._replace(roles=given)), said, text, as_json=as_json)


def _path(settings: Settings, file: Path | None) -> Path:
    found = file or settings.amqp.security.users_file
    if found is None:
        raise ConfigError("no file of users is named: use --file, or the setting amqp.security.users_file")
    return found


def _iterations(settings: Settings) -> int:
    return settings.amqp.security.scram_iterations


def _password(file: Path | None) -> str:
    """A new password. Raises ConfigError."""
    try:
        if file is not None and str(file) != "-":
            return file.read_text().rstrip("\r\n")
        if file is not None or not sys.stdin.isatty():
            return sys.stdin.readline().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the password cannot be read: {error}") from None
    asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    return asked


def _require_new(users: Users, user: str) -> None:
    if user in users.users:
        raise InvalidOperationError(f"there is a user {user} already: users passwd gives it a new password")


def _actions(names: list[str]) -> frozenset[Action]:
    if unknown := [each for each in names if each not in [*Action]]:
        raise ConfigError(f"{unknown[0]!r} is no action: {', '.join(Action)}")
    return frozenset(map(Action, names))


def _require_pattern(pattern: str) -> None:
    try:
        parse_pattern(pattern)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _with_permissions(users: Users, name: str, change: Callable[[Permissions], Permissions], *, role: bool) -> Users:
    if role:
        return users.with_role(require_name(name), change(users.roles.get(name, Permissions({}))))
    user = users.user(name)
    return users.with_user(user._replace(permissions=change(user.permissions)))


def _change(path: Path, change: Callable[[Users], Users], said: dict[str, Any], text: str, *, as_json: bool) -> None:
    change_users(path, change)
    note_done(text)
    if as_json:
        print_json(said)
    else:
        print_line(text)


def _shown(permissions: Permissions) -> str:
    return "; ".join(f"{', '.join(_sorted(actions))} {each}" for each, actions in permissions.granted.items())


def _sorted(actions: frozenset[Action]) -> list[Action]:
    return [each for each in Action if each in actions]
