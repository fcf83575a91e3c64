"""Settings of the AMQP front end (`journal.broker`)."""

from __future__ import annotations

from enum import Enum

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from journal.amqp.security_settings import SecuritySettings, UserLimits
from journal.process.listening import is_loopback, listen_address


class Durability(Enum):
    """The messages that survive a crash of the node."""

    ALWAYS = "always"
    AS_SENT = "as-sent"


class AmqpSettings(BaseModel):
    """Where an active node serves AMQP 1.0, and the bounds of its clients. Times are milliseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: str = ""
    """Host and port, as in 127.0.0.1:5672; port 0 takes a free one. Empty: AMQP is not served."""

    insecure: bool = False
    """Whether clients may connect from other machines although there are no users or no TLS."""

    credit: int = Field(default=1000, ge=1)
    """Messages that a client may send ahead on a link, before the first of them is durable."""

    connections_max: int = Field(default=10_000, ge=1)
    """Connections at a time; a further one is closed at once."""

    handshake_ms: int = Field(default=10_000, ge=1)
    """The time within which a client must have opened its connection."""

    idle_timeout_ms: int = Field(default=60_000, ge=0)
    """A connection that has been silent for twice this time is ended; 0 waits for ever."""

    durability: Durability = Durability.ALWAYS
    """The messages in durable queues that survive a crash of the node: all that are accepted, or only those that their
    senders mark as durable. The others are then accepted at once, and never in Kafka."""

    auto_create: bool = True
    """Whether an address that a client asks for is made, with an anycast queue of its name."""

    duplicate_window: int = Field(default=0, ge=0)
    """The number of duplicate-detection ids that an address remembers if it is made on demand."""

    security: SecuritySettings = SecuritySettings()
    """Who may connect, and TLS."""

    per_user: UserLimits = UserLimits()
    """How much all connections of one user may have together."""

    @field_validator("listen")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            listen_address(value)
        return value

    @model_validator(mode="after")
    def _is_loopback(self) -> AmqpSettings:
        security = self.security
        missing = {"users": security.users_file is None, "TLS": security.certificate is None}
        if self.listen and not self.insecure and any(missing.values()) and not is_loopback(self.address[0]):
            without = " and ".join(name for name, is_missing in missing.items() if is_missing)
            raise ValueError(
                f"{self.listen} can be reached from other machines, and AMQP is served without {without}: set "
                "amqp.security.users_file and amqp.security.certificate, listen on 127.0.0.1, or allow it with "
                "amqp.insecure (node --insecure)"
            )
        return self

    @property
    def scheme(self) -> str:
        """The scheme of the URL that clients use."""
        return "amqp" if self.security.certificate is None else "amqps"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of `listen`."""
        return listen_address(self.listen)
