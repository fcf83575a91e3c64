"""The smoke test on a cluster of containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.brokers import BROKERS
from tests.chaos.cluster import Cluster
from tests.chaos.judging import SEED
from tests.chaos.smoke import survive_kills
from tests.support.containers import ContainerKafka, NoContainersError, find_image

pytestmark = pytest.mark.timeout(900)

RATE = 500


@pytest.fixture
def containers() -> Iterator[ContainerKafka]:
    """Skips the test where there is no engine or no image, unless CI has set them up."""
    try:
        image = find_image()
    except NoContainersError as error:
        if os.environ.get("CI_DOCKER") == "required":
            raise
        pytest.skip(str(error))
    print(f"{BROKERS} brokers of {image}")
    with ContainerKafka(image, BROKERS) as running:
        yield running


def test_nothing_is_lost_doubled_or_reordered_by_kills_on_a_cluster_of_containers(
    containers: ContainerKafka, tmp_path: Path
) -> None:
    print(f"KAFKA_JOURNAL_TEST_SEED={SEED}")
    with Cluster(tmp_path, seed=SEED, kafka=containers, rate=RATE) as cluster:
        survive_kills(cluster, tmp_path)
