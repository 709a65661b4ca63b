"""After any history the scheduler decides as one that starts now: nothing is stale, no pod is forgotten."""

import pytest

from support.changing_cluster import ChangingCluster


@pytest.mark.parametrize("seed", range(5))
def test_what_was_kept_and_hints_change_no_decision(seed: int) -> None:
    cluster = ChangingCluster(seed)
    for _ in range(40):
        cluster.step()
        if cluster.random.random() < 0.35:
            cluster.settle()
    cluster.settle()
    assert cluster.bound
