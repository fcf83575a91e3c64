"""Translates the user's Kafka client properties, which are librdkafka's, for the worker's Faust consumer (aiokafka).

Properties for connections and authentication must mean the same for every client of a process. Properties that tune
librdkafka are left out, because aiokafka has no counterpart. Importing this module also keeps aiokafka's clients from
creating topics: on brokers with auto.create.topics.enable a metadata request would create them, and aiokafka has no
setting against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import aiokafka.client  # type: ignore[import-untyped]
from aiokafka.helpers import create_ssl_context  # type: ignore[import-untyped]

from journal.errors import ConfigError

aiokafka.client.MetadataRequest = partial(aiokafka.client.MetadataRequest, allow_auto_topic_creation=False)

_PLAIN = {
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
_SSL = {
    "ssl.ca.location": "cafile",
    "ssl.certificate.location": "certfile",
    "ssl.key.location": "keyfile",
    "ssl.key.password": "password",
}
_HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"


def aiokafka_properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments of AIOKafkaConsumer. Raises ConfigError for an `ssl.` or `sasl.` property without a counterpart
    in aiokafka."""
    found: dict[str, Any] = {}
    for key, value in properties.items():
        if key in _PLAIN:
            found[_PLAIN[key]] = value
        elif key == "security.protocol":
            found["security_protocol"] = value.upper()
        elif key == "metadata.max.age.ms":
            found["metadata_max_age_ms"] = int(value)
        elif key.startswith(("ssl.", "sasl.")) and key not in _SSL and key != _HOSTNAME_CHECK:
            raise ConfigError(f"the worker's Faust consumer has nothing for the client property {key}")
    if found.get("security_protocol", "").endswith("SSL"):
        found["ssl_context"] = _ssl_context(properties)
    return found


def _ssl_context(properties: Mapping[str, str]) -> object:
    try:
        context = create_ssl_context(**{name: properties.get(key) for key, name in _SSL.items()})
    except OSError as error:
        raise ConfigError(f"the files of ssl.*.location cannot be read: {error}") from error
    if properties.get(_HOSTNAME_CHECK) == "none":
        context.check_hostname = False
    return context
