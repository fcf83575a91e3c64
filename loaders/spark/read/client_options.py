"""The user's Kafka client properties, which have librdkafka's names, translated for Spark's Kafka source and sink.

Properties for connections and authentication must mean the same for every client; properties that tune librdkafka are
ignored. Certificates and keys are passed as text, so that executors on other machines need no files.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from journal.errors import ConfigError

_SAME = frozenset({"security.protocol", "client.id", "client.rack", "client.dns.lookup", "metadata.max.age.ms"})
_SASL_LOGINS: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_SASL_OURS = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})
_PEM: Mapping[str, tuple[str, str]] = {
    "ssl.ca.location": ("ssl.truststore.certificates", "ssl.truststore.type"),
    "ssl.ca.pem": ("ssl.truststore.certificates", "ssl.truststore.type"),
    "ssl.certificate.location": ("ssl.keystore.certificate.chain", "ssl.keystore.type"),
    "ssl.certificate.pem": ("ssl.keystore.certificate.chain", "ssl.keystore.type"),
    "ssl.key.location": ("ssl.keystore.key", "ssl.keystore.type"),
    "ssl.key.pem": ("ssl.keystore.key", "ssl.keystore.type"),
}
_HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"


def java_options(properties: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's Kafka source and sink. A property that starts with `kafka.` is passed unchanged.

    Raises ConfigError for a `ssl.` or `sasl.` property that the Java client has no counterpart for.
    """
    own = {key: value for key, value in properties.items() if key.startswith("kafka.")}
    theirs = {key: value for key, value in properties.items() if key not in own}
    java: dict[str, str] = {}
    for key, value in theirs.items():
        if key in _SAME:
            java[key] = value.upper() if key == "security.protocol" else value
        elif key in _PEM:
            name, type_ = _PEM[key]
            java |= {name: _text(key, value), type_: "PEM"}
        elif key == "ssl.key.password":
            java[key] = value
        elif key == _HOSTNAME_CHECK:
            java[key] = "" if value == "none" else value
        elif key.startswith(("ssl.", "sasl.", "enable.ssl.")) and key not in _SASL_OURS:
            raise ConfigError(
                f"Spark's Kafka client has nothing for the client property {key}: give kafka.* of its own"
            )
    if any(key in theirs for key in _SASL_OURS):
        java |= _sasl(theirs)
    return {f"kafka.{key}": value for key, value in java.items()} | own


def _sasl(properties: Mapping[str, str]) -> dict[str, str]:
    mechanism = properties.get("sasl.mechanisms", properties.get("sasl.mechanism", "")).upper()
    if mechanism not in _SASL_LOGINS:
        raise ConfigError(
            f"sasl.mechanism {mechanism or 'is missing'}: for others than {', '.join(_SASL_LOGINS)} give Spark "
            "kafka.sasl.mechanism and kafka.sasl.jaas.config"
        )
    username, password = (_quoted(properties.get(f"sasl.{name}", "")) for name in ("username", "password"))
    login = f"{_SASL_LOGINS[mechanism]} required username={username} password={password};"
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _text(key: str, value: str) -> str:
    if key.endswith(".pem"):
        return value
    try:
        return Path(value).read_text()
    except OSError as error:
        raise ConfigError(f"{key}: {error}") from error
