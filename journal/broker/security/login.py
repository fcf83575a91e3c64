"""SASL of one connection, up to the name of its user. The mechanisms that are offered:

    EXTERNAL                     to a client with a certificate, whose common name is the user's
    SCRAM-SHA-512, SCRAM-SHA-256 to everybody
    PLAIN                        over TLS, and to clients of this machine
    ANONYMOUS                    where it is switched on

Where there are no users, only ANONYMOUS is offered. Reasons of refusals are logged, and the client is not told them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import NamedTuple

from journal.amqp.handshake import SASL_AUTH, SASL_OK, SASL_SYS_TEMP
from journal.amqp.transport_types import SaslInitFrame, SaslResponseFrame
from journal.broker.security.passwords import SCRAM_HASHES, is_password, prepared_or_same
from journal.broker.security.scram import ScramExchange, refused
from journal.broker.security.tls import common_name
from journal.broker.security.users import ANONYMOUS_USER, Users
from journal.broker.security.users_file import UsersFile
from journal.errors import AmqpPeerError, ConfigError
from journal.process.commands import command
from journal.process.listening import is_loopback

log = logging.getLogger(__name__)

_NONCE_BYTES = 18


class Peer(NamedTuple):
    """A client, as its socket shows it."""

    address: str
    """Its address, with the port."""
    loopback: bool
    tls: bool
    certificate_name: str
    """The common name of its certificate; empty without one."""


class LoginAnswer(NamedTuple):
    """What the client is sent: a challenge, or the outcome."""

    challenge: bytes | None = None
    code: int = SASL_OK
    data: bytes | None = None
    """What comes with the outcome."""


_EMPTY_CHALLENGE = LoginAnswer(b"")
"""Asks for what a client has not sent with its choice of a mechanism."""


class Login:
    """One connection's login. `user` is its user's name once an answer has the code `SASL_OK`."""

    def __init__(self, users: UsersFile | None, peer: Peer, hashing: Executor, *, anonymous: bool) -> None:
        """`hashing` runs what takes too long for the event loop."""
        self._file = users
        self.peer = peer
        self._hashing = hashing
        self._mechanism = ""
        self._scram: ScramExchange | None = None
        self.user = ""
        self.mechanisms = _mechanisms(peer, users=users is not None, anonymous=anonymous)

    async def answer(self, frame: SaslInitFrame | SaslResponseFrame) -> LoginAnswer:
        """The answer to a frame of the client."""
        if isinstance(frame, SaslInitFrame):
            self._mechanism, message = frame.mechanism, frame.initial_response
        else:
            message = frame.response
        try:
            answer = await self._step(message)
        except AmqpPeerError as error:
            return self._refused(SASL_AUTH, str(error))
        except ConfigError as error:
            return self._refused(SASL_SYS_TEMP, str(error))
        if answer.challenge is None:
            log.info("%s: user %s logs in with %s", self.peer.address, self.user, self._mechanism)
        return answer

    async def _step(self, message: bytes | None) -> LoginAnswer:
        """Raises AmqpPeerError for a login that is refused, ConfigError if the users cannot be read."""
        if self._file is None:
            self.user = ANONYMOUS_USER
            return LoginAnswer()
        users = self._file.current()
        if self._mechanism == "ANONYMOUS":
            self.user = _anonymous(users, self._file.path)
            return LoginAnswer()
        if self._mechanism == "EXTERNAL":
            self.user = _external(users, self.peer.certificate_name, message or b"")
            return LoginAnswer()
        if message is None:
            return _EMPTY_CHALLENGE
        if self._mechanism == "PLAIN":
            self.user = await self._plain(users, message)
            return LoginAnswer()
        if self._scram is None:
            self._scram = ScramExchange(self._mechanism, users, secrets.token_urlsafe(_NONCE_BYTES))
            return LoginAnswer(self._scram.first(message))
        signature = self._scram.final(message)
        self.user = self._scram.user
        return LoginAnswer(data=signature)

    async def _plain(self, users: Users, message: bytes) -> str:
        try:
            acts_for, name, password = message.decode().split("\0")
        except ValueError:
            raise refused("the message of PLAIN is malformed") from None
        name = prepared_or_same(name)
        if acts_for and prepared_or_same(acts_for) != name:
            raise refused("a client acts for no other user")
        mechanism, hash_name = next(iter(SCRAM_HASHES.items()))
        verifier, known = users.verifier(name, mechanism)
        check = asyncio.get_running_loop().run_in_executor
        fits = await check(self._hashing, is_password, prepared_or_same(password), hash_name, verifier)
        if not (fits and known):
            raise refused(f"wrong name or password: {name}")
        return name

    def _refused(self, code: int, text: str) -> LoginAnswer:
        log.warning("%s: login with %s is refused: %s", self.peer.address, self._mechanism, text)
        return LoginAnswer(code=code)


def _mechanisms(peer: Peer, *, users: bool, anonymous: bool) -> tuple[str, ...]:
    if not users:
        return ("ANONYMOUS",)
    offered: Sequence[tuple[str, bool]] = (
        ("EXTERNAL", bool(peer.certificate_name)),
        *((each, True) for each in reversed(list(SCRAM_HASHES))),
        ("PLAIN", peer.tls or peer.loopback),
        ("ANONYMOUS", anonymous),
    )
    return tuple(name for name, is_offered in offered if is_offered)


def _anonymous(users: Users, file: Path) -> str:
    if ANONYMOUS_USER not in users.users:
        add = command("users add", "--no-password", "--file", file.absolute(), ANONYMOUS_USER)
        raise refused(f"there is no user {ANONYMOUS_USER}: `{add}` makes it")
    return ANONYMOUS_USER


def _external(users: Users, certificate_name: str, message: bytes) -> str:
    name = prepared_or_same(certificate_name)
    if name not in users.users:
        raise refused(f"there is no user {name}, whom the client's certificate names")
    try:
        acts_for = message.decode()
    except UnicodeDecodeError:
        raise refused("the message of EXTERNAL is not UTF-8") from None
    if acts_for and prepared_or_same(acts_for) != name:
        raise refused("a client acts for no other user")
    return name


def peer_of(extra: Callable[[str], object]) -> Peer:
    """The client at the other end of an asyncio transport, by its `get_extra_info`."""
    found = extra("peername")
    host, port = found[:2] if isinstance(found, tuple) else ("?", "?")
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return Peer(address, is_loopback(host), extra("ssl_object") is not None, common_name(extra("peercert")))
