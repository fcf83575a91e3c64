"""The keys that SCRAM keeps of a password (RFC 5802, RFC 7677), and SASLprep (RFC 4013).

The password cannot be computed from these keys, and whoever reads them cannot log in with them. PLAIN is checked
against the same keys.
"""

from __future__ import annotations

import hashlib
import hmac
import stringprep
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

SCRAM_HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Names in hashlib of the hashes of mechanisms."""

SALT_BYTES = 16

_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class Verifier(NamedTuple):
    """What is kept of a password for one hash."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def verifier_of(password: str, hash_name: str, salt: bytes, iterations: int) -> Verifier:
    """The keys of a password. It takes as long as the iterations do, and other threads run meanwhile."""
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    stored_key = hashlib.new(hash_name, hmac.digest(salted, b"Client Key", hash_name)).digest()
    return Verifier(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", hash_name))


def is_password(password: str, hash_name: str, verifier: Verifier) -> bool:
    """Whether the keys are those of this password. It takes the same time whether they are or not."""
    found = verifier_of(password, hash_name, verifier.salt, verifier.iterations)
    return hmac.compare_digest(found.stored_key, verifier.stored_key)


def prepared(text: str) -> str:
    """A name or password in the one form in which all spellings of it are compared. Raises ValueError."""
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    found = unicodedata.normalize("NFKC", mapped)
    for each in found:
        if any(prohibits(each) for prohibits in _PROHIBITED) or stringprep.in_table_a1(each):
            raise ValueError(f"the character U+{ord(each):04X} is not allowed in names and passwords")
    if any(map(stringprep.in_table_d1, found)) and (
        any(map(stringprep.in_table_d2, found))
        or not (stringprep.in_table_d1(found[0]) and stringprep.in_table_d1(found[-1]))
    ):
        raise ValueError("letters of both writing directions are mixed in a name or password")
    return found


def prepared_or_same(text: str) -> str:
    """What a client gives as a name or password, in that form. A text that has none fits no user."""
    try:
        return prepared(text)
    except ValueError:
        return text
