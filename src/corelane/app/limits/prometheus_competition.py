"""Pods that compete for a container's CPUs, from Prometheus: use by cAdvisor, requests by kube-state-metrics.

Requests become cpu.weight as the kubelet and the runtimes write it (cgroup version 2, which alone has the
pressure by which a wait for others is noticed). Groups beside the kubelet's, such as system.slice, are not
in these metrics and count as idle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corelane.app.limits import prometheus
from corelane.app.limits.prometheus import PrometheusServer
from corelane.kernel import cfs
from corelane.kernel.cpu_time import competitors
from corelane.kernel.cpu_time.competitors import GroupWeight, Level
from corelane.kernel.cpu_time.counters import Rates
from corelane.limits.measure import Measurement

PODS: Final = "kube_pod_info"
REQUESTS: Final = "kube_pod_container_resource_requests"
CLASSES: Final = "kube_pod_status_qos_class"
CPUS: Final = "kube_node_status_capacity"
PRESSURE: Final = "container_pressure_cpu_stalled_seconds_total"
_CPU: Final = '{resource="cpu"}'
_SHARES: Final = 1024 / 100
"""cpu.shares of cpu.weight 1."""
_TOP: Final = "/kubepods"


@dataclass(slots=True)
class _Pod:
    """A pod of a node: requests in milliCPU and use in ms a second, by container."""

    uid: str
    node: str
    qos: str = ""
    requests: dict[str, int] = field(default_factory=dict)
    used: dict[str, float] = field(default_factory=dict)

    @property
    def above(self) -> str:
        """The group of its class; that of Guaranteed pods is the kubelet's own."""
        return _TOP if self.qos == "guaranteed" else f"{_TOP}/{self.qos}"

    @property
    def path(self) -> str:
        return f"{self.above}/pod{self.uid}"

    @property
    def group(self) -> GroupWeight:
        return _group(self.path, cfs.pod_weight(_shares(self.requests.values())), sum(self.used.values()))

    @property
    def containers(self) -> dict[str, GroupWeight]:
        return {
            name: _group(
                f"{self.path}/{name}", cfs.container_weight(_shares([self.requests.get(name, 0)])), used
            )
            for name, used in self.used.items()
        }


Key = tuple[str, str]
"""Namespace and name of a pod."""


@dataclass(frozen=True, slots=True)
class Competitors:
    """Measurements with their competition; names by UID; notes on what is missing."""

    measured: list[Measurement]
    names: dict[str, tuple[str, str, str]]
    notes: list[str]


def add(server: PrometheusServer, measured: Sequence[Measurement]) -> Competitors:
    """Return all containers of the cluster with what competes with them. Raises PrometheusError."""
    pods, cpus, missing = _read(server)
    if all(isinstance(each.rates, Rates) and each.rates.stalled is None for each in measured):
        missing.append(PRESSURE)
    if missing:
        note = (
            f"Prometheus has no {', '.join(missing)}: no advice on requests where other processes hold a "
            "container back. kube_… are kube-state-metrics', container_pressure_… the kubelets' (cgroup "
            "version 2, feature KubeletPSI); or record on the node with corelane limits watch -o json, and "
            "give that file"
        )
        return Competitors(list(measured), {}, [note] if measured else [])
    for each in measured:
        if (pod := pods.get((each.namespace, each.pod))) and isinstance(each.rates, Rates):
            pod.used[each.container] = each.rates.used or 0.0
    nodes: dict[str, list[_Pod]] = {}
    for pod in pods.values():
        nodes.setdefault(pod.node, []).append(pod)
    names = {pod.uid: (namespace, name, "") for (namespace, name), pod in pods.items()}
    with_competition = []
    for each in measured:
        owner = pods.get((each.namespace, each.pod))
        if owner is not None and owner.node in cpus and isinstance(each.rates, Rates):
            levels = tuple(_levels(owner, each.container, nodes[owner.node]))
            rivals = competitors.competition((), levels, 1.0)
            request = owner.requests.get(each.container, 0)
            each = replace(each, cpus=cpus[owner.node], competition=rivals, request=request)
        with_competition.append(each)
    return Competitors(with_competition, names, [])


def _read(server: PrometheusServer) -> tuple[dict[Key, _Pod], dict[str, int], list[str]]:
    """Pods, CPUs of nodes, and metrics of which there are no series."""
    found = {
        PODS: prometheus.vector(server, PODS),
        REQUESTS: prometheus.vector(server, REQUESTS + _CPU),
        CLASSES: prometheus.vector(server, CLASSES),
        CPUS: prometheus.vector(server, CPUS + _CPU),
    }
    pods = {_key(labels): _Pod(labels.get("uid", ""), labels.get("node", "")) for labels, _ in found[PODS]}
    for labels, cores in found[REQUESTS]:
        if (pod := pods.get(_key(labels))) and 0 <= cores < 1e6:
            pod.requests[_label(labels, "container")] = round(1000 * cores)
    for labels, value in found[CLASSES]:
        if value == 1 and (pod := pods.get(_key(labels))):
            pod.qos = labels.get("qos_class", "").lower()
    cpus = {labels.get("node", ""): round(cores) for labels, cores in found[CPUS] if 1 <= cores < 1e6}
    known = {key: pod for key, pod in pods.items() if pod.uid and pod.node and pod.qos}
    return known, cpus, [metric for metric, series in found.items() if not series]


def _key(labels: Mapping[str, str]) -> Key:
    return _label(labels, "namespace"), _label(labels, "pod")


def _label(labels: Mapping[str, str], name: str) -> str:
    """A label of kube-state-metrics: where the scrape does not honour it, the name is that of its own pod."""
    return labels.get(f"exported_{name}") or labels.get(name, "")


def _levels(pod: _Pod, container: str, node: Sequence[_Pod]) -> Iterator[Level]:
    """The levels of a container's path, the lowest first."""
    containers = pod.containers
    beside = [group for name, group in containers.items() if name != container]
    yield Level(containers[container], tuple(beside))
    classes = {}
    for qos in ("burstable", "besteffort"):
        if of_class := [one for one in node if one.qos == qos]:
            # Burstable pods' weight is that of their requests, BestEffort's the least.
            requests = [milli for one in of_class for milli in one.requests.values()]
            weight = cfs.pod_weight(_shares(requests if qos == "burstable" else ()))
            used = sum(sum(one.used.values()) for one in of_class)
            classes[qos] = _group(f"{_TOP}/{qos}", weight, used)
    others = [one for one in node if one is not pod]
    guaranteed = [one.group for one in others if one.qos == "guaranteed"]
    if pod.qos == "guaranteed":
        yield Level(pod.group, (*guaranteed, *classes.values()))
        return
    yield Level(pod.group, tuple(one.group for one in others if one.qos == pod.qos))
    rest = [group for qos, group in classes.items() if qos != pod.qos]
    yield Level(classes[pod.qos], (*guaranteed, *rest))


def _shares(requests: Iterable[int]) -> int:
    return cfs.shares(sum(requests))


def _group(path: str, weight: int, used: float) -> GroupWeight:
    """Of a second, so that microseconds used are ms a second times 1000."""
    return GroupWeight(path, round(weight * _SHARES), used_us=round(1000 * used))
