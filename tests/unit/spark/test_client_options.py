"""What connects librdkafka connects Spark's Java client too, or is refused; what only tunes librdkafka is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from journal.errors import ConfigError
from loaders.spark.read.client_options import java_options


def test_a_plain_login_becomes_a_jaas_line() -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "me",
        "sasl.password": 'a"\\b',
    }
    assert java_options(given) == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="me" password="a\\"\\\\b";',
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "scram-sha-512"])
def test_scram_has_a_login_of_its_own(mechanism: str) -> None:
    options = java_options({"sasl.mechanism": mechanism, "sasl.username": "me", "sasl.password": "p"})
    assert options["kafka.sasl.mechanism"] == mechanism.upper()
    assert "scram.ScramLoginModule required" in options["kafka.sasl.jaas.config"]


def test_certificates_and_keys_go_along_as_text(tmp_path: Path) -> None:
    for name in ("ca", "certificate", "key"):
        (tmp_path / name).write_text(f"the {name}")
    given = {f"ssl.{name}.location": str(tmp_path / name) for name in ("ca", "certificate", "key")}
    options = java_options(given | {"ssl.key.password": "secret", "ssl.endpoint.identification.algorithm": "none"})
    assert options == {
        "kafka.ssl.truststore.certificates": "the ca",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.certificate.chain": "the certificate",
        "kafka.ssl.keystore.key": "the key",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.key.password": "secret",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


def test_tuning_of_librdkafka_is_left_out_and_spark_s_own_options_pass() -> None:
    assert java_options({"queued.min.messages": "7", "kafka.fetch.min.bytes": "1"}) == {"kafka.fetch.min.bytes": "1"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ssl.crl.location": "x"}, "ssl.crl.location"),
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
        ({"sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"sasl.username": "me"}, "sasl.mechanism is missing"),
        ({"ssl.ca.location": "/nowhere/ca"}, "/nowhere/ca"),
    ],
)
def test_what_the_java_client_has_nothing_for_is_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        java_options(given)
