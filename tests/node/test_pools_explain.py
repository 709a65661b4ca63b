from corelane.node.explain.pools import explain, remedies
from corelane.workload import Exclusivity, NUMAPolicy, PodQOS, TopologyLevel
from support.node_asks import LAPTOP, QUAD_NUMA
from support.pool_asks import admitted, floating, labelled, pools

LSE, LSR = PodQOS.LSE, PodQOS.LSR


def told(state, request):
    return [reason.text for reason in explain(state, request)]


def test_what_would_make_a_pod_fit_names_the_pods_to_be_moved():
    state = admitted(pools(LAPTOP), labelled("a", LSR, 4000), labelled("b", LSR, 2000))
    request = labelled("c", LSE, 2000, 0)
    texts = told(state, request)
    assert "it would fit if test/b (CPUs 3,7) was elsewhere" in texts
    assert "1 CPU would fit" in texts
    assert remedies(state, request) == "it would fit if test/b (CPUs 3,7) was elsewhere; 1 CPU would fit"


def test_what_would_make_a_pod_fit_names_the_wish_to_be_given_up():
    state = admitted(pools(LAPTOP), labelled("a", LSR, 2000))
    texts = told(state, labelled("e", LSE, 2000, exclusive=Exclusivity(TopologyLevel.NUMA, required=True)))
    assert any(text.startswith("it would fit without: exclusive at numa level") for text in texts)


def test_of_a_pod_that_fits_every_term_is_told_with_what_decided():
    state = admitted(pools(QUAD_NUMA, allocator="koordinator"), labelled("a", LSR, 2000))
    texts = told(state, labelled("b", LSE, 4000, numa=NUMAPolicy.SINGLE_NUMA_NODE))
    assert any("NUMA nodes: 1 (runner-up 1)" in text for text in texts)
    assert any("decides" in text or "lower ids win" in text for text in texts)


def test_there_is_nothing_to_tell_of_a_pod_in_a_pool():
    assert told(pools(LAPTOP), floating("f", 500)) == []
    assert remedies(pools(LAPTOP), floating("f", 500)) == ""


def test_there_is_no_remedy_for_a_pod_that_fits_or_contradicts_itself():
    assert remedies(pools(LAPTOP), labelled("a", LSR, 2000)) == ""
    assert remedies(pools(LAPTOP), labelled("a", LSR, 1500)) == ""
