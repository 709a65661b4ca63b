"""Scores by amounts: pods without requests count too, so that no node gets all of them."""

from collections import Counter

from support.core_lab import CoreLab
from support.objects import node
from support.pods import container, guaranteed, pod


def test_pods_without_requests_go_to_busier_nodes_too() -> None:
    """kube-scheduler takes each container without requests to use 100m of CPU and 200 MiB of memory."""
    lab = CoreLab(*(node(name, 16) for name in ("n1", "n2", "n3")))
    lab.on("n1", guaranteed("busy", "1500m", memory="3Gi"))
    where = Counter(lab.bound(*(pod(f"p{number}", container("main")) for number in range(60))))
    assert abs(where["n2"] - where["n3"]) <= 1
    assert 5 <= where["n1"] < where["n2"]


def test_what_pods_without_requests_count_leaves_with_them() -> None:
    lab = CoreLab(node("n1", 16))
    scored = lab.core.cluster.columns.scored[lab.node().row]
    pods = [lab.on("n1", each) for each in (pod("p", container("main")), guaranteed("q", "2"))]
    assert (scored[0], lab.node().requested["cpu"]) == (2100, 2000)
    for each in pods:
        lab.delete(each)
    assert not scored.any()
