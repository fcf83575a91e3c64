"""A client of SCRAM, written from RFC 5802 on its own: it shares no code with the server's side."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramClient:
    """One login; the messages of the client, in order."""

    def __init__(self, mechanism: str, name: str, password: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL") -> None:
        self._hash = {"SCRAM-SHA-256": hashlib.sha256, "SCRAM-SHA-512": hashlib.sha512}[mechanism]
        self._password = password
        self._bare = f"n={name.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        text = challenge.decode()
        nonce, salt, count = (part[2:] for part in text.split(","))
        salted = self._salted(base64.b64decode(salt), int(count))
        client_key = self._hmac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        about = f"{self._bare},{text},{without_proof}".encode()
        signature = self._hmac(self._hash(client_key).digest(), about)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), about)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def is_server(self, answer: bytes | None) -> bool:
        """Whether the server knows the password's keys too."""
        return answer == b"v=" + base64.b64encode(self._signature)

    def _salted(self, salt: bytes, count: int) -> bytes:
        found = last = self._hmac(self._password.encode(), salt + b"\0\0\0\1")
        for _ in range(count - 1):
            last = self._hmac(self._password.encode(), last)
            found = bytes(one ^ other for one, other in zip(found, last, strict=True))
        return found

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self._hash).digest()
