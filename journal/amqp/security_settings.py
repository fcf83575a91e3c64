"""Settings of who may connect to the AMQP front end, and how much one user may take (`journal.broker.security`)."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ITERATIONS_LEAST = 4096
"""The least number of iterations that RFC 7677 allows."""


class SecuritySettings(BaseModel):
    """Users and TLS of the AMQP front end. Files that change are read again at the next connection."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    users_file: Path | None = None
    """The file of users and permissions, which `kafka-journal users` writes. With it nothing is allowed that is not
    granted. Without it nobody is asked for a name, and everybody may do everything."""

    anonymous: bool = False
    """Whether clients may also connect without a name where there is a users_file. They have the permissions of the
    user `anonymous`."""

    scram_iterations: int = Field(default=100_000, ge=ITERATIONS_LEAST)
    """The number of hashes with which `kafka-journal users` derives the keys of a new password."""

    certificate: Path | None = None
    """The PEM file of the server's certificate, with those of its intermediate authorities. With it only TLS 1.2 and
    newer is spoken."""

    key: Path | None = None
    """The PEM file of the certificate's private key, which is not encrypted. Without it the key is in the file of the
    certificate."""

    clients_ca: Path | None = None
    """The PEM file of the authorities that sign certificates of clients. A client with such a certificate may log in
    without a password (EXTERNAL): the common name of the certificate is its user's name."""

    clients_need_certificates: bool = False
    """Whether a client without such a certificate is refused."""

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for name in ("key", "clients_ca"):
            if getattr(self, name) is not None and self.certificate is None:
                raise ValueError(f"{name} is for TLS: set certificate too")
        if self.clients_need_certificates and self.clients_ca is None:
            raise ValueError("clients_need_certificates asks who signs them: set clients_ca too")
        return self


class UserLimits(BaseModel):
    """How much all connections of one user may have together. Where there are no users, none of it applies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connections_max: int = Field(default=1000, ge=1)
    """Connections of a user at a time; a further one is closed."""

    sessions_max: int = Field(default=10_000, ge=1)
    """Sessions of a user at a time; a further one is ended."""

    links_max: int = Field(default=100_000, ge=1)
    """Links of a user at a time; a further one is refused."""

    in_flight_max: int = Field(default=100_000, ge=1)
    """Messages that a user was sent and has not settled. Further ones stay in their queues until it has."""
