"""The bounds of one AMQP connection: what a peer may make the engine keep, or do."""

from __future__ import annotations

from dataclasses import dataclass

from journal.errors import ConfigError

FRAME_BYTES_LEAST = 512
"""A frame of this size must be accepted by everybody (part 2 of the specification, MIN-MAX-FRAME-SIZE)."""


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Bounds of a connection, its sessions and its links."""

    frame_bytes_max: int = 65_536
    """The largest frame either side sends: as much as the engine keeps of what has not arrived whole."""

    sasl_frame_bytes_max: int = 4096
    """The largest frame of a peer that is not authenticated. 512 bytes are the specification's; tokens are longer."""

    channel_max: int = 255
    """The highest channel number, so one less than the number of sessions."""

    handle_max: int = 1023
    """The highest handle, so one less than the number of a session's links."""

    incoming_window: int = 2048
    """Transfer frames that a session may send ahead. The engine opens the window again at half."""

    message_bytes_max: int = 100 * 2**20
    """The largest message, over all its frames. A link that exceeds it is detached. It is at least `frame_bytes_max`,
    so that a message of one frame is never too large."""

    idle_timeout_ms: int = 60_000
    """The peer is told to send something at least this often; after twice this time of silence the connection ends. 0
    waits for ever."""

    def __post_init__(self) -> None:
        if self.frame_bytes_max < FRAME_BYTES_LEAST:
            raise ConfigError(f"frame_bytes_max is {self.frame_bytes_max}: AMQP asks for at least {FRAME_BYTES_LEAST}")
        if self.message_bytes_max < self.frame_bytes_max:
            raise ConfigError(
                f"message_bytes_max is {self.message_bytes_max}, less than frame_bytes_max {self.frame_bytes_max}: "
                "lower that first"
            )
