"""The sessions of a connection: which of ours and of the peer's channels each has."""

from __future__ import annotations

from journal.amqp.conditions import FRAMING_ERROR, NOT_ALLOWED, RESOURCE_LIMIT_EXCEEDED
from journal.amqp.limits import EngineLimits
from journal.amqp.output import Output
from journal.amqp.session import AmqpSession
from journal.amqp.states import EndpointState
from journal.amqp.transport_types import BeginFrame
from journal.errors import AmqpPeerError, StateError


class SessionTable:
    """Sessions by channel, in both directions."""

    def __init__(self, output: Output, limits: EngineLimits) -> None:
        self.output = output
        self.limits = limits
        self.channel_max = limits.channel_max
        """The highest channel that our limits and, once it has opened, the peer's allow."""
        self.by_channel: dict[int, AmqpSession] = {}
        """Sessions by our channel."""
        self.by_remote_channel: dict[int, AmqpSession] = {}
        """Sessions by the peer's channel."""

    def new(self) -> AmqpSession:
        """A session on the lowest free channel."""
        channel = next((each for each in range(self.channel_max + 1) if each not in self.by_channel), None)
        if channel is None:
            raise StateError(f"channels 0 to {self.channel_max} all have a session, and the peer allows no more")
        session = self.by_channel[channel] = AmqpSession(self.output, self.limits, channel, self.release)
        return session

    def take_begin(self, channel: int, begin: BeginFrame) -> AmqpSession:
        """The session that the peer begins on its channel: a new one, or ours that it answers."""
        if channel > self.limits.channel_max:
            raise AmqpPeerError(FRAMING_ERROR, f"channel {channel} is above the channel-max {self.limits.channel_max}")
        if channel in self.by_remote_channel:
            raise AmqpPeerError(NOT_ALLOWED, f"channel {channel} has a session already")
        if begin.remote_channel is None:
            try:
                session = self.new()
            except StateError as error:
                raise AmqpPeerError(RESOURCE_LIMIT_EXCEEDED, str(error)) from None
        else:
            found = self.by_channel.get(begin.remote_channel)
            if found is None:
                raise AmqpPeerError(NOT_ALLOWED, f"a begin answers channel {begin.remote_channel}, which is not in use")
            session = found
        session.take_begin(begin)
        session.remote_channel = channel
        self.by_remote_channel[channel] = session
        return session

    def take_end(self, channel: int, session: AmqpSession) -> None:
        """The peer has ended the session, so its channel is free; ours is once we have, too."""
        del self.by_remote_channel[channel]
        if session.state is EndpointState.CLOSED:
            self.release(session)

    def release(self, session: AmqpSession) -> None:
        """The session is closed in both directions."""
        self.by_channel.pop(session.channel, None)

    def drop(self) -> None:
        """The connection has ended."""
        for session in self.by_channel.values():
            session.forget_links()
            session.abandon()
        self.by_channel.clear()
        self.by_remote_channel.clear()
