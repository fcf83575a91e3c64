"""Settings of every process of a journal: flag, then environment `KAFKA_JOURNAL_*`, then file, then default.

`Settings` is frozen; `client_properties` pass through to every Kafka client unchanged.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Callable, Container, Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from journal.amqp.settings import AmqpSettings
from journal.errors import ConfigError
from journal.process.listening import listen_address
from journal.routing.config import RoutingConfig
from journal.settings import PREFIX, JournalSettings
from journal.store.settings import QUEUE_REFERENCES_IN_MEMORY_MAX, REFERENCES_IN_MEMORY_MAX, StoreSettings

_NO_SETTINGS = re.compile(
    r"CACHE|KAFKA_DIR|ROLE|EPOCH|REASON|TEST_\w+"
    r"|(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
"""Names of environment variables that begin with our prefix and are no settings. The embedded Kafka, the commands run
on a change of role and the tests read some of them, and Kubernetes sets some for a service whose name begins with the
prefix."""


class Settings(JournalSettings):
    """All settings of one process. Times are milliseconds, sizes bytes."""

    checkpoint_interval_ms: int = Field(default=100, ge=1)
    """How long a worker gathers frames before it checkpoints. A longer time means fewer rows of short-lived records, a
    shorter one less lag. The markers of an activation end it at once, so it does not add to a failover."""

    worker_processes: int = Field(default=1, ge=1, le=64)
    """The number of processes of a worker, which share its shards. More processes than shards or cores are useless."""

    session_timeout_ms: int = Field(default=6000, ge=1000)
    """The session time-out of the workers' consumer group: a dead worker's shards move to another worker once it has
    passed. Keep it the same as `node_session_timeout_ms`, because a worker often dies together with its node, and the
    next node then waits at its gate for the shards. A longer pause of the process costs a rebalance, never data.
    Brokers allow no less than their group.min.session.timeout.ms (6 s by default)."""

    node_session_timeout_ms: int = Field(default=6000, ge=500, le=600_000)
    """The session time-out of the nodes' consumer group: a dead node's duty passes to another node once it has passed.
    The default is the shortest that brokers allow by default (group.min.session.timeout.ms). A shorter one alone does
    not make a failover faster, because the next node also waits until the WAL has stood still for as long as
    `fence_check_ms` demands. A longer pause of the process costs a failover, never data. The maximum is ten minutes:
    requests may take half of it, and librdkafka allows them at most five."""

    node_heartbeat_ms: int = Field(default=500, ge=50)
    """How often a node sends its group a heartbeat. A standby learns from the answer to its next heartbeat that it has
    become the leader, so the usual third of the session time-out would add up to two seconds to a failover."""

    node_report_ms: int = Field(default=5000, ge=100)
    """How often a node writes its status into the control rows. A node whose report is later than that counts as
    gone."""

    handover_timeout_ms: int = Field(default=10_000, ge=100)
    """How long other nodes wait for the successor that a leaving node has named, before they take over instead."""

    lone_start_ms: int = Field(default=20_000, ge=100)
    """How long the journal must be without an active node before a standby that is not fit takes over with an
    unfinished copy, although a fit node has reported lately."""

    activation_retry_ms: int = Field(default=1000, ge=10)
    """The pause of a node after an activation that failed. It doubles with each further failure, up to 32 times."""

    preferred: bool = False
    """Whether a leaving node chooses this one before others, if it is fit."""

    fail_back: bool = False
    """Whether a preferred standby that is fit asks the active node to hand over to it. A `Node` that is not preferred
    refuses this setting; other processes ignore it, because they may share the settings file."""

    on_active_command: str = ""
    """A command that is run when the node has become active, without a shell, with the variables KAFKA_JOURNAL_ROLE,
    _NODE, _JOURNAL, _EPOCH and _REASON."""

    on_standby_command: str = ""
    """A command that is run in the same way when the node has become a standby, and as soon as an active node begins to
    leave. Nobody waits for it, so a slow one overlaps with the successor's commands."""

    on_fenced_command: str = ""
    """A command that is run in the same way when the node has been fenced."""

    hook_timeout_ms: int = Field(default=30_000, ge=100)
    """A role's command that takes longer is killed. Its outcome decides nothing."""

    trim_every_ms: int = Field(default=0, ge=0)
    """How often the worker that serves shard 0 trims the WAL below what the archive has. 0 means never. All workers of
    a journal should have the same value, because shard 0 moves."""

    trim_without_archive: bool = False
    """Whether `trim_every_ms` applies to a journal without an archive. What it deletes is then kept nowhere."""

    on_in_doubt: Literal["keep", "commit", "rollback"] = "keep"
    """The way in which the active node settles transactions in doubt whose coordinator does not come back. Only the
    coordinator knows the outcome, so any value but `keep` may contradict it; a coordinator that asks later is told what
    was done."""

    on_in_doubt_after_ms: int = Field(default=0, ge=0)
    """How long transactions stay in doubt after their prepare before `on_in_doubt` settles them. It should be longer
    than any coordinator may be away."""

    references_in_memory_max: int = Field(default=REFERENCES_IN_MEMORY_MAX, ge=0)
    """The number of references to messages that a node keeps in memory, about 250 bytes each. The rest waits in its
    local index under `directory`."""

    queue_references_in_memory_max: int = Field(default=QUEUE_REFERENCES_IN_MEMORY_MAX, ge=0)
    """The number of references that one queue may keep in memory, so that no queue uses the memory of all others."""

    store: StoreSettings = StoreSettings()
    """The settings of a node's message store."""

    web: str = ""
    """Host and port where a node answers `/metrics`, `/live` and `/ready` over HTTP; port 0 takes a free one. Nobody is
    asked who he is. Empty: nothing is answered."""

    amqp: AmqpSettings = AmqpSettings()
    """Where a node serves AMQP 1.0 while it is active, and the bounds of its clients."""

    routing: RoutingConfig = RoutingConfig()
    """The routes and sources, for messages to Kafka topics and back."""

    @field_validator("web")
    @classmethod
    def _is_address(cls, value: str) -> str:
        if value:
            listen_address(value)
        return value

    @field_validator("on_active_command", "on_standby_command", "on_fenced_command")
    @classmethod
    def _command_is_quoted(cls, value: str) -> str:
        shlex.split(value)  # pydantic reports a ValueError as an error of the setting
        return value

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.node_heartbeat_ms * 2 >= self.node_session_timeout_ms:
            raise ValueError("node_heartbeat_ms must be below half of node_session_timeout_ms: one may be lost")
        if self.trim_without_archive and not self.trim_every_ms:
            raise ValueError("trim_without_archive is for trim_every_ms: set that too")
        if self.on_in_doubt != "keep" and not self.on_in_doubt_after_ms:
            raise ValueError(f"on_in_doubt = {self.on_in_doubt} needs on_in_doubt_after_ms: a coordinator has its time")
        if self.on_in_doubt_after_ms and self.on_in_doubt == "keep":
            raise ValueError("on_in_doubt_after_ms is for on_in_doubt: set that too")
        if "message_bytes_max" in self.store.model_fields_set:
            self.store.require_fit(self.limits)
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)


def load_settings(file: str | os.PathLike[str] | None = None, **flags: Any) -> Settings:
    """Settings from `flags` (those that are not None), the environment, and a TOML file. Raises ConfigError."""
    path = None if file is None else Path(file)
    given = {name: value for name, value in flags.items() if value is not None}
    _require_known(os.environ)

    class FileSettings(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    try:
        if path is not None and not path.is_file():
            raise ConfigError(
                f"{path} is a directory, not a file" if path.is_dir() else f"no configuration file {path}"
            )
        return FileSettings(**given)
    except ValidationError as error:
        raise ConfigError("; ".join(_fault(fault, given, path) for fault in error.errors())) from None
    except SettingsError as error:
        raise ConfigError(f"{error}: {error.__cause__}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _require_known(variables: Iterable[str]) -> None:
    """Raises ConfigError for a variable that has our prefix and names no setting."""
    for variable in variables:
        prefix, name = variable[: len(PREFIX)].upper(), variable[len(PREFIX) :]
        if prefix != PREFIX or _NO_SETTINGS.fullmatch(name.upper()):
            continue
        setting, nested, _ = name.lower().partition("__")
        if setting not in Settings.model_fields or (nested and not _has_parts(setting)):
            raise ConfigError(f"{_in_environment(variable)}: {_no_such(name.lower(), Settings, _variable)}")


def _has_parts(setting: str) -> bool:
    kind = Settings.model_fields[setting].annotation
    return get_origin(kind) is dict or (isinstance(kind, type) and issubclass(kind, BaseModel))


# ---- what is wrong with a setting ----------------------------------------------------------------------------------


def _fault(fault: Any, flags: Container[str], path: Path | None) -> str:
    """A text with the place of a setting, and what is wrong with it."""
    place = [str(part) for part in fault["loc"]]
    if fault["type"] == "extra_forbidden":
        what = _no_such(place[-1], _model_at(place[:-1]))
    else:
        what = fault["msg"].removeprefix("Value error, ")
    return f"{_origin(place, flags, path)}: {what}" if place else what


def _origin(place: Sequence[str], flags: Container[str], path: Path | None) -> str:
    """Where the setting comes from: its variable in the environment, or its name with the file."""
    name = ".".join(place)
    for end in range(len(place)):
        variable = _variable("__".join(place[: end + 1]))
        if place[0] not in flags and variable in map(str.upper, os.environ):
            return _in_environment(variable)
    return name if path is None or place[0] in flags else f"{path}: {name}"


def _model_at(place: Sequence[str]) -> type[BaseModel]:
    """The model of the settings that stand at a place; a number in it is an index into a list, and what
    names no setting is the key of a table."""
    model: type[BaseModel] = Settings
    for part in place:
        if part in model.model_fields:
            kind = model.model_fields[part].annotation
            model = next((each for each in (kind, *get_args(kind)) if isinstance(each, type)), BaseModel)
    return model


def _no_such(name: str, model: type[BaseModel], shown: Callable[[str], str] = str) -> str:
    """A text that says that there is no setting of this name, and which one is alike."""
    alike = get_close_matches(name, model.model_fields, n=1)
    return "there is no such setting" + "".join(f"; did you mean {shown(known)}?" for known in alike)


def _variable(setting: str) -> str:
    return PREFIX + setting.upper()


def _in_environment(variable: str) -> str:
    return f"{variable} in the environment"
