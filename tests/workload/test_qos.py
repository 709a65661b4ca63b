"""The QoS class and the exclusive CPUs follow from requests and limits, as the kubelet decides them."""

import pytest

from corelane.workload.request import (
    ContainerRequest,
    PodRequest,
    PodResources,
    QOSClass,
    exclusive_cpus,
    qos_class,
)

GUARANTEED, BURSTABLE, BEST_EFFORT = QOSClass.GUARANTEED, QOSClass.BURSTABLE, QOSClass.BEST_EFFORT
BOTH = {"cpu": 2000, "memory": 1 << 30}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], BEST_EFFORT),
        ([({}, {})], BEST_EFFORT),
        ([({"cpu": 0}, {"cpu": 0, "nvidia.com/gpu": 1})], BEST_EFFORT),
        ([(BOTH, BOTH)], GUARANTEED),
        ([(BOTH, BOTH), (BOTH, BOTH)], GUARANTEED),
        ([(BOTH, BOTH), ({}, {})], BURSTABLE),
        ([({"cpu": 2000}, {"cpu": 2000})], BURSTABLE),
        ([(BOTH, {**BOTH, "cpu": 3000})], BURSTABLE),
        ([({"cpu": 1}, {})], BURSTABLE),
        ([({**BOTH, "nvidia.com/gpu": 1}, BOTH)], GUARANTEED),
    ],
)
def test_the_qos_class_of_containers(parts, expected):
    assert qos_class(parts) is expected


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        (BOTH, BOTH, GUARANTEED),
        ({"cpu": 2000}, {"cpu": 2000}, BURSTABLE),
        (BOTH, {}, BURSTABLE),
        ({}, {}, BEST_EFFORT),
    ],
)
def test_the_qos_class_of_pod_level_resources(requests, limits, expected):
    assert qos_class([(requests, limits)], of_pod=True) is expected


@pytest.mark.parametrize(
    ("qos", "request_", "options", "expected"),
    [
        (GUARANTEED, 2000, {}, 2),
        (GUARANTEED, 1500, {}, 0),
        (GUARANTEED, 0, {}, 0),
        (BURSTABLE, 2000, {}, 0),
        (GUARANTEED, 2 * 10**9, {"unit": 10**9}, 2),
        (GUARANTEED, 2 * 10**9 + 1, {"unit": 10**9}, 0),
        (GUARANTEED, 2000, {"has_pod_level": True}, 0),
        (GUARANTEED, 2000, {"has_pod_level": True, "managed": True}, 2),
    ],
)
def test_exclusive_cpus_need_a_guaranteed_pod_and_an_integer_request(qos, request_, options, expected):
    assert exclusive_cpus(qos, request_, **options) == expected


def test_a_pod_with_pod_level_resources_has_exclusive_cpus_only_with_the_gate():
    container = ContainerRequest("a", cpu_request=2000, cpu_limit=2000, memory_request=1, memory_limit=1)
    pod = PodRequest("u", "ns", "p", GUARANTEED, (container,), level=PodResources(4000, 1))
    assert pod.exclusive_cpus(container) == 0
    assert pod.exclusive_cpus(container, gate=True) == 2
