from dataclasses import replace

import pytest

from corelane.node import Refusal
from corelane.node.config import PoolOptions
from corelane.node.entries import Sharing
from corelane.node.explain import what_if
from corelane.node.pools.classes import pod_class
from corelane.reasons import Code
from corelane.workload import Band, BindPolicy, CPUPolicy, PlacementSpec, PodQOS
from corelane.workload.request import ContainerRequest, PodResources, QOSClass
from support.node_asks import container, init, pod, sidecar
from support.pool_asks import floating, labelled, pools

LSE, LSR, LS, BE, SYSTEM = PodQOS
ALONE, LENT, POOL, BEST = Sharing.ALONE, Sharing.SHARED_WITH_BE, Sharing.POOL, Sharing.BEST_EFFORT
BARE = pod("x", ContainerRequest("a"), qos=QOSClass.BEST_EFFORT)
UPSTREAM = {"guaranteed_default": LS}


@pytest.mark.parametrize(
    ("pod", "settings", "qos", "sharing", "common", "own"),
    [
        pytest.param(labelled("x", LSE, 2000), {}, LSE, ALONE, 2, {}, id="LSE"),
        pytest.param(labelled("x", LSR, 1500, 500), {}, LSR, LENT, 2, {}, id="LSR, whole in all"),
        pytest.param(labelled("x", LSR, 0), {}, LS, POOL, 0, {}, id="LSR without a request"),
        pytest.param(labelled("x", LSE, 2000, band=Band.PROD), {}, LSE, ALONE, 2, {}, id="LSE, prod"),
        pytest.param(labelled("x", LSE, 2000, band=Band.MID), {}, LS, POOL, 0, {}, id="LSE, not prod"),
        pytest.param(labelled("x", LSR, 2000), {"bind": None}, LS, POOL, 0, {}, id="no bind policy"),
        pytest.param(labelled("x", LS, 2000), {}, LS, POOL, 0, {}, id="LS"),
        pytest.param(labelled("x", BE, 2000), {}, BE, BEST, 0, {}, id="BE"),
        pytest.param(labelled("x", SYSTEM, 2000), {}, SYSTEM, Sharing.SYSTEM, 0, {}, id="SYSTEM"),
        pytest.param(labelled("x", None, 2000, 500), {}, LSR, LENT, 0, {"a": 2}, id="Guaranteed"),
        pytest.param(labelled("x", None, 1500), {}, LS, POOL, 0, {}, id="Guaranteed, fractional"),
        pytest.param(labelled("x", None, 2000), UPSTREAM, LS, POOL, 0, {}, id="Guaranteed, as upstream"),
        pytest.param(floating("x", 2000), {}, LS, POOL, 0, {}, id="Burstable"),
        pytest.param(BARE, {}, BE, BEST, 0, {}, id="BestEffort"),
        pytest.param(
            replace(BARE, placement_spec=PlacementSpec(LS)), {}, LS, POOL, 0, {}, id="BestEffort, labelled LS"
        ),
    ],
)
def test_a_label_decides_the_class_then_the_kubernetes_class(pod, settings, qos, sharing, common, own):
    found = pod_class(pod, PoolOptions(**settings))
    assert (found.qos, found.sharing, found.common, dict(found.own)) == (qos, sharing, common, own)


@pytest.mark.parametrize(
    ("pod", "sharing", "common", "own"),
    [
        (labelled("x", None, 2000, cpu_policy=CPUPolicy.NONE), POOL, 0, {}),
        (labelled("x", LSR, 2000, cpu_policy=CPUPolicy.NONE), POOL, 0, {}),
        (labelled("x", LSR, 2000, cpu_policy=CPUPolicy.NUMA), POOL, 0, {}),
        (labelled("x", LSR, 2000, cpu_policy=CPUPolicy.IMMOVABLE), POOL, 2, {}),
        (labelled("x", LSE, 2000, cpu_policy=CPUPolicy.EXCLUSIVE), ALONE, 2, {}),
        (labelled("x", LS, 2000, cpu_policy=CPUPolicy.EXCLUSIVE), POOL, 0, {}),
        (labelled("x", None, 2000, 100, cpu_policy=CPUPolicy.EXCLUSIVE), ALONE, 0, {"a": 2}),
        (labelled("x", None, 2000, cpu_policy=CPUPolicy.IMMOVABLE), POOL, 0, {"a": 2}),
        (floating("x", 2000, 2000, cpu_policy=CPUPolicy.EXCLUSIVE), ALONE, 0, {"a": 2}),
        (floating("x", 2000, 3000, cpu_policy=CPUPolicy.EXCLUSIVE), POOL, 0, {}),
    ],
)
def test_gocranes_cpu_policy_loosens_or_binds(pod, sharing, common, own):
    found = pod_class(pod, PoolOptions())
    assert (found.sharing, found.common, dict(found.own)) == (sharing, common, own)


@pytest.mark.parametrize("cpu_policy", [None, CPUPolicy.EXCLUSIVE])
@pytest.mark.parametrize(
    ("milli", "named"), [((2000,), True), ((500, 2000), True), ((500,), False)], ids=["2", "500m, 2", "500m"]
)
def test_pod_level_resources_are_the_reason_only_where_a_request_is_an_integer(milli, named, cpu_policy):
    request = replace(labelled("x", None, *milli, cpu_policy=cpu_policy), level=PodResources(3000, 1 << 30))
    found = pod_class(request, PoolOptions())
    assert not found.bound
    assert (found.why.code is Code.POD_LEVEL_RESOURCES) == named


def test_explain_gives_a_container_beside_pod_level_resources_no_exclusive_cpus():
    request = replace(labelled("x", None, 2000), level=PodResources(3000, 1 << 30))
    _, explanation = what_if.explain(pools(), request)
    (explained,) = explanation.containers
    assert explained.requested == 0
    assert [step.text for step in explained.steps] == [
        "shared pool: pod-level resources, without feature gate PodLevelResourceManagers"
    ]


def test_gocranes_numa_floats_near_where_it_fits_best():
    assert pod_class(labelled("x", None, 2000, cpu_policy=CPUPolicy.NUMA), PoolOptions()).local


def test_constrained_burst_binds_nothing_and_goes_by_the_limit():
    found = pod_class(floating("x", 500, 2000, bind=BindPolicy.CONSTRAINED_BURST), PoolOptions())
    assert found.confined
    assert not found.bound


def test_how_many_cpus_a_pod_needs_at_once_counts_init_containers_beside_sidecars():
    request = pod("x", init("i", 4000), sidecar("s", 1000), container("a", 2000))
    assert pod_class(request, PoolOptions()).cpus(request) == 4


@pytest.mark.parametrize(
    ("pod", "settings", "words"),
    [
        (labelled("x", LSE, 1500), {}, "the requested CPUs must be integer: pod requests 1500m"),
        (
            replace(labelled("x", LSR, 2000), containers=(ContainerRequest("a", cpu_request=2000),)),
            {"strict_requests": True},
            "container a: request 2000m, limit not set",
        ),
        (labelled("x", LSE, 1000, bind=BindPolicy.CONSTRAINED_BURST), {}, "but the pod is labelled LSE"),
        (floating("x", 500, bind=BindPolicy.CONSTRAINED_BURST), {}, "container a has no CPU limit; set one"),
    ],
)
def test_a_pod_that_contradicts_itself_is_told_what_and_where(pod, settings, words):
    with pytest.raises(Refusal, match=words):
        pod_class(pod, PoolOptions(**settings))
