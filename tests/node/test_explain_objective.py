from corelane.node.explain.pod_explanation import remedies
from corelane.workload import Exclusivity, PodQOS, TopologyLevel
from support.node_asks import LAPTOP
from support.pool_asks import admitted, floating, labelled, pools

LSE, LSR = PodQOS.LSE, PodQOS.LSR


def test_the_remedies_of_a_refused_pod_name_the_pods_to_move_and_the_cpus_that_would_fit():
    state = admitted(pools(LAPTOP), labelled("a", LSR, 4000), labelled("b", LSR, 2000))
    request = labelled("c", LSE, 2000, 0)
    assert remedies(state, request) == "move test/b off CPUs 3,7; or request 1 CPU"


def test_the_remedies_of_a_refused_pod_name_the_requirement_to_drop():
    state = admitted(pools(LAPTOP), labelled("a", LSR, 2000))
    request = labelled("e", LSE, 2000, exclusive=Exclusivity(TopologyLevel.NUMA, required=True))
    assert "drop the requirement exclusive NUMA node" in remedies(state, request)


def test_a_pod_in_the_shared_pool_has_no_remedies():
    assert remedies(pools(LAPTOP), floating("f", 500)) == ""


def test_a_pod_that_fits_or_contradicts_itself_has_no_remedies():
    assert remedies(pools(LAPTOP), labelled("a", LSR, 2000)) == ""
    assert remedies(pools(LAPTOP), labelled("a", LSR, 1500)) == ""
