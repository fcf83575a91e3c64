"""Topics of others that a journal's transactions write to: the settings that they need, and the commands that change
them."""

from __future__ import annotations

from journal.errors import KafkaRefusedError
from journal.kafka.access import access_of, on_topic
from journal.kafka.ports import TopicState
from journal.settings import JournalSettings
from journal.topics.commands import config_command, create_command

TIMESTAMP_BEFORE_MS_MIN = 60_000
"""The least value of message.timestamp.before.max.ms that a topic may have. Brokers apply this setting also to the
markers that end transactions. A marker that is refused as too old is never written again, and its transactional id
stays blocked."""

_UNBOUNDED = 2**63 - 1


def fault_of_topic(settings: JournalSettings, topic: str, state: TopicState | None, what: str = "topic") -> str:
    """The reason why a topic is not safe enough for records that must be as safe as the journal's; empty if it is.

    `state` is None if the topic does not exist. `what` is the word for the topic in the reason.
    """
    servers = settings.bootstrap_servers
    if state is None:
        return (
            f"{what} {topic} is not there, or nobody may see it: "
            f"{create_command(servers, topic, replication=settings.replication)}"
        )
    if not state.may_write:
        return f"{what} {topic} may not be written to: {_allow(settings, topic, 'Write')}"
    if state.replication < settings.replication:
        return (
            f"{what} {topic} has {state.replication} replicas, and the journal's own {settings.replication}: "
            "what a transaction has committed could be lost there. Create it with more, or set replication"
        )
    insync = int(state.config.get("min.insync.replicas", "1"))
    if insync < settings.min_insync_replicas:
        return (
            f"{what} {topic} has min.insync.replicas={insync}, and the journal {settings.min_insync_replicas}: "
            f"{config_command(servers, topic, {'min.insync.replicas': str(settings.min_insync_replicas)})}"
        )
    if insync > state.replication:
        return f"{what} {topic} has {state.replication} replicas and min.insync.replicas={insync}: it takes no records"
    bound, before_ms = _timestamp_bound(state)
    if before_ms < TIMESTAMP_BEFORE_MS_MIN and state.config.get("message.timestamp.type") != "LogAppendTime":
        return (
            f"{what} {topic} has {bound}={before_ms}: it may refuse the end of a transaction, "
            "after which the journal's writers are stuck: "
            f"{config_command(servers, topic, {bound: str(TIMESTAMP_BEFORE_MS_MIN)})} (or more)"
        )
    return ""


def _timestamp_bound(state: TopicState) -> tuple[str, int]:
    """The setting that bounds the age of a topic's records, and its value in ms. Brokers before 4.0 also have an older
    setting, which applies if the newer one sets no bound."""
    newer, older = "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"
    bounds = {name: int(state.config.get(name, _UNBOUNDED)) for name in (newer, older)}
    return (older, bounds[older]) if bounds[newer] == _UNBOUNDED > bounds[older] else (newer, bounds[newer])


def hidden_topic(settings: JournalSettings, topic: str, error: KafkaRefusedError) -> str:
    """The text about a topic that the cluster does not let us see."""
    return f"{error}: {_allow(settings, topic, 'Describe', 'DescribeConfigs', 'Write')}"


def _allow(settings: JournalSettings, topic: str, *operations: str) -> str:
    access = access_of(settings.bootstrap_servers, settings.client_properties)
    return access.command(on_topic(topic, *operations))
