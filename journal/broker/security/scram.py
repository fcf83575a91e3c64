"""The server's side of SCRAM (RFC 5802, RFC 7677): two messages of the client and their answers.

    client  n,,n=alice,r=CLIENT_NONCE
    server  r=CLIENT_NONCE SERVER_NONCE,s=SALT,i=ITERATIONS
    client  c=biws,r=...,p=PROOF        the password's keys made this proof
    server  v=SIGNATURE                 the server knows these keys too

Channel binding is not offered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re

from journal.amqp.conditions import UNAUTHORIZED_ACCESS
from journal.broker.security.passwords import SCRAM_HASHES, prepared_or_same
from journal.broker.security.users import Users
from journal.errors import AmqpPeerError

_FIRST = re.compile(r"(?P<header>(?P<binding>[ny]|p=[^,]*),(?:a=(?P<authzid>[^,]*))?,)(?P<bare>.*)", re.DOTALL)
_BARE = re.compile(r"n=(?P<name>[^,]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,.*)?", re.DOTALL)
_BASE64 = "[A-Za-z0-9+/=]+"
_FINAL = re.compile(rf"(?P<before>c=(?P<header>{_BASE64}),r=(?P<nonce>[^,]+)(?:,.*)?),p=(?P<proof>{_BASE64})")


class ScramExchange:
    """One login. `user` is the name that the client gives; it is proven once `final` has returned."""

    def __init__(self, mechanism: str, users: Users, server_nonce: str) -> None:
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._users = users
        self._server_nonce = server_nonce
        self.user = ""
        self._header = b""
        self._nonce = ""
        self._said = ""
        """The first messages of both sides, which the proof is about."""

    def first(self, message: bytes) -> bytes:
        """Answers the client's first message. Raises AmqpPeerError."""
        found = _FIRST.fullmatch(_text(message))
        bare = found and _BARE.fullmatch(found["bare"])
        if found is None or bare is None:
            raise refused("the first message of SCRAM is malformed")
        if found["binding"].startswith("p"):
            raise refused("the client asks for channel binding, which is not offered")
        self.user = prepared_or_same(_unescaped(bare["name"]))
        if found["authzid"] and _unescaped(found["authzid"]) != self.user:
            raise refused("a client acts for no other user")
        self._header = found["header"].encode()
        self._verifier, self._known = self._users.verifier(self.user, self._mechanism)
        self._nonce = bare["nonce"] + self._server_nonce
        salt = base64.b64encode(self._verifier.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._verifier.iterations}"
        self._said = f"{found['bare']},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """Checks the proof in the client's second message, and returns the server's own. Raises AmqpPeerError."""
        found = _FINAL.fullmatch(_text(message))
        if found is None:
            raise refused("the second message of SCRAM is malformed")
        said = f"{self._said},{found['before']}".encode()
        signature = hmac.digest(self._verifier.stored_key, said, self._hash)
        proof = _decoded(found["proof"])
        key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        fits = hmac.compare_digest(hashlib.new(self._hash, key).digest(), self._verifier.stored_key)
        fits &= len(proof) == len(signature)
        if _decoded(found["header"]) != self._header or found["nonce"] != self._nonce:
            raise refused("the second message of SCRAM is not about the first one")
        if not (fits and self._known):
            raise refused(f"wrong name or password: {self.user}")
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, said, self._hash))


def refused(text: str) -> AmqpPeerError:
    """The error of a login that is refused; its text is for the log."""
    return AmqpPeerError(UNAUTHORIZED_ACCESS, text)


def _unescaped(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise refused("a name has an equals sign that is not escaped")
    return name.replace("=2C", ",").replace("=3D", "=")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise refused("a message of SCRAM is not UTF-8") from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise refused("a message of SCRAM has malformed Base64") from None
