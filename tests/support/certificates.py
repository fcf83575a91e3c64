"""Certificates made with openssl: an authority, and what it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class SignedPair(NamedTuple):
    """A certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """An authority with a directory of its own."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory / name
        self._directory.mkdir(parents=True)
        self._count = 0
        pair = self._new_key("ca")
        self.certificate, self._key = pair
        _openssl("req", "-x509", "-key", pair.key, "-out", pair.certificate, "-days", "2", "-subj", f"/CN={name}")

    def signed(self, subject: str) -> SignedPair:
        """A certificate of a subject, as `/O=us/CN=alice`, for this machine's addresses."""
        self._count += 1
        pair = self._new_key(str(self._count))
        request, extensions = pair.key.with_suffix(".csr"), pair.key.with_suffix(".ext")
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("req", "-new", "-key", pair.key, "-out", request, "-subj", subject)
        signing = ["-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial", "-days", "2"]
        _openssl("x509", "-req", "-in", request, "-out", pair.certificate, "-extfile", extensions, *signing)
        return pair

    def _new_key(self, name: str) -> SignedPair:
        pair = SignedPair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", pair.key)
        return pair


def _openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
