"""The faults of a journal's topics, all at once, each topic with the command that mends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from journal.errors import TopicError
from journal.kafka.ports import TopicState
from journal.process.commands import command
from journal.settings import JournalSettings
from journal.topics.commands import config_command, partitions_command, remake_command
from journal.topics.names import control_topic
from journal.topics.required_topics import RequiredTopic
from journal.words import counted, counted_are


class SettingFault(NamedTuple):
    """A setting of a topic that differs from what the journal needs."""

    key: str
    value: str
    needed: str
    bound: str
    why: str


class TopicFault(NamedTuple):
    """A topic that differs from what the journal needs."""

    topic: str
    reasons: Sequence[str]
    """Faults other than those of settings."""
    settings: Sequence[SettingFault]
    mend: str
    """The command that mends all of them, or advice if no command does."""

    def __str__(self) -> str:
        settings = [f"{each.key}={each.value or 'nothing'} and needs {each.needed}" for each in self.settings]
        return f"topic {self.topic} {'; '.join([*self.reasons, *(f'has {each}' for each in settings)])}: {self.mend}"

    def to_json(self) -> dict[str, object]:
        settings = [each._asdict() for each in self.settings]
        return {"topic": self.topic, "reasons": list(self.reasons), "settings": settings, "mend": self.mend}


def faults_of(
    settings: JournalSettings, topics: Iterable[RequiredTopic], found: Mapping[str, TopicState], *, unused: bool
) -> list[TopicFault]:
    """The faults of each of a journal's topics. `found` are those that exist on the cluster. Topics of a journal that
    is `unused`, because nothing was written to it, can be deleted and made again."""
    judge = _fault_of_unused if unused else _fault_of_used
    faults = []
    for topic in topics:
        state = found.get(topic.name)
        if state is None:
            faults.append(TopicFault(topic.name, ["is missing"], [], command("init", journal=settings.journal)))
        elif (fault := judge(settings, topic, state)).mend:
            faults.append(fault)
    return faults


def error_of(settings: JournalSettings, faults: Sequence[TopicFault], advice: str = "") -> TopicError:
    """One error that tells all faults, each in a line of its own."""
    lines = [str(fault) for fault in faults]
    if len(faults) > 1:
        lines.insert(0, f"{counted_are(len(faults), 'topic')} not as journal {settings.journal} needs them:")
    error = TopicError("\n".join([*lines, advice] if advice else lines))
    error.faults = [fault.to_json() for fault in faults]
    return error


def _fault_of_unused(settings: JournalSettings, topic: RequiredTopic, state: TopicState) -> TopicFault:
    servers, wrong = settings.bootstrap_servers, _wrong_settings(topic, state)
    reasons, commands = [], []
    if state.partitions != topic.partitions:
        counts = f"with {counted(state.partitions, 'partition')} instead of {topic.partitions}"
        reasons.append(f"is there already, {counts}, and nothing was written")
        commands.append(partitions_command(servers, topic.name, topic.partitions))
    if wrong:
        commands.append(config_command(servers, topic.name, {each.key: each.needed for each in wrong}))
    if state.replication < topic.replication:
        reasons.append(_too_few_replicas(topic, state))
    if state.partitions > topic.partitions or state.replication < topic.replication:
        numbers = {"partitions": topic.partitions, "replication": topic.replication}
        commands = [remake_command(servers, topic.name, **numbers, config=topic.config)]
    return TopicFault(topic.name, reasons, wrong, " && ".join(commands))


def _fault_of_used(settings: JournalSettings, topic: RequiredTopic, state: TopicState) -> TopicFault:
    name, wrong = settings.journal, _wrong_settings(topic, state)
    reasons, mends = [], []
    if state.partitions != topic.partitions:
        reasons.append(f"has {counted(state.partitions, 'partition')} and its control rows say {topic.partitions}")
        anew = "make a new journal and replay this one into it"
        if topic.name == control_topic(name):
            mends.append(anew)
        else:
            as_it_is = f"`{command('init', '--shards', state.partitions, journal=name)}`"
            mends.append(f"while nothing has been written to the journal, {as_it_is} mends it; afterwards, {anew}")
    if state.replication < topic.replication:
        reasons.append(_too_few_replicas(topic, state))
        mends.append("add some with kafka-reassign-partitions, or configure less (replication)")
    if wrong:
        needed = {each.key: each.needed for each in wrong}
        mends.append(config_command(settings.bootstrap_servers, topic.name, needed))
    return TopicFault(topic.name, reasons, wrong, "; ".join(mends))


def _too_few_replicas(topic: RequiredTopic, state: TopicState) -> str:
    return f"has {counted(state.replication, 'replica')} and {topic.replication} are configured"


def _wrong_settings(topic: RequiredTopic, state: TopicState) -> list[SettingFault]:
    return [
        SettingFault(key, value, each.value, each.bound.value, each.why)
        for key, each in topic.settings.items()
        if not each.is_met_by(value := state.config.get(key, ""))
    ]
