"""Errors of authorisation say who may not do what with which resource, and which command allows it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from journal.kafka.access import access_of, on_cluster, on_group, on_topic, on_transactional_id
from journal.kafka.errors import delivery_error, operating_error, producer_error

NEEDS = (
    on_topic("t", "Read", "Describe"),
    on_group("g", "Read"),
    on_transactional_id("id", "Write"),
    on_cluster("DescribeConfigs"),
)
COMMAND = "kafka-acls --bootstrap-server b:1 --add --allow-principal User:me"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            f"User:me may not Read or Describe topic t: {COMMAND} --operation Read --operation Describe --topic t",
        ),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, f"User:me may not Read group g: {COMMAND} --operation Read --group g"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            f"User:me may not Write transactional-id id: {COMMAND} --operation Write --transactional-id id",
        ),
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            f"User:me may not DescribeConfigs cluster: {COMMAND} --operation DescribeConfigs --cluster",
        ),
    ],
)
def test_a_refused_request_names_the_principal_the_resource_and_the_command_that_allows_it(
    code: int, says: str
) -> None:
    request = access_of("b:1", {"sasl.username": "me", "security.protocol": "SASL_SSL"}).asks(*NEEDS)
    error = KafkaError(code)
    for told in (
        operating_error("call", error, request),
        producer_error("call", error, "t", request),
        delivery_error(error, "t", request),
    ):
        assert str(told).endswith(f": {says}")


def test_an_error_that_is_not_one_of_authorisation_names_no_permission() -> None:
    request = access_of("b:1", {}).asks(*NEEDS)
    assert "may not" not in str(operating_error("call", KafkaError(KafkaError._TIMED_OUT), request))


@pytest.mark.parametrize(
    ("properties", "principal"),
    [
        ({}, "User:ANONYMOUS"),
        ({"security.protocol": "PLAINTEXT"}, "User:ANONYMOUS"),
        ({"security.protocol": "SSL"}, "User:NAME"),
        ({"sasl.username": "me", "security.protocol": "SASL_PLAINTEXT"}, "User:me"),
    ],
)
def test_a_clients_principal_follows_from_its_properties(properties: dict[str, str], principal: str) -> None:
    assert access_of("b:1", properties).principal == principal
