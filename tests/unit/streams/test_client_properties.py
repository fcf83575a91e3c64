"""librdkafka's properties as aiokafka takes them."""

from __future__ import annotations

import ssl

import pytest

from journal.errors import ConfigError
from streams.reading.client_properties import aiokafka_properties


def test_credentials_mean_the_same_for_both_clients() -> None:
    given = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "worker",
        "sasl.password": "secret",
    }
    assert aiokafka_properties(given) == {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "worker",
        "sasl_plain_password": "secret",
    }


def test_tls_becomes_a_context_and_the_hostname_is_checked_unless_told_otherwise() -> None:
    checked = aiokafka_properties({"security.protocol": "SSL"})["ssl_context"]
    assert isinstance(checked, ssl.SSLContext)
    assert checked.check_hostname
    lax = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "none"}
    assert not aiokafka_properties(lax)["ssl_context"].check_hostname


def test_tuning_of_librdkafka_means_nothing_to_the_worker() -> None:
    assert aiokafka_properties({"linger.ms": "5", "metadata.max.age.ms": "1000"}) == {"metadata_max_age_ms": 1000}


@pytest.mark.parametrize("key", ["sasl.kerberos.keytab", "ssl.keystore.location"])
def test_security_that_the_worker_cannot_have_is_an_error_and_not_left_out(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        aiokafka_properties({key: "x"})


def test_a_missing_certificate_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.\*\.location"):
        aiokafka_properties({"security.protocol": "SSL", "ssl.ca.location": "no-such-file.pem"})
