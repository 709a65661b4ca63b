"""Pods with one thing changed, for asking what would help."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
from msgspec.structs import replace

from corelane import quantity
from corelane.kube.node_terms import matches_required_affinity
from corelane.kube.objects import Node
from corelane.kube.pod import (
    Affinity,
    Container,
    NodeSelectorTerm,
    Pod,
    ResourceRequirements,
)
from corelane.quantity import QuantityError
from corelane.reasons import Code, Reason
from corelane.scheduler.cluster.pods import PodInfo

T = TypeVar("T")
_IDENTITY: Final = frozenset(
    {"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/instance-type"}
)
_PLACE: Final = ("topology.kubernetes.io/", "failure-domain.beta")
"""Labels, and beginnings of labels, by which a node is what or where it is: they must not be changed."""
_UNITS: Final = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def missing_labels(pod: Pod, node: Node) -> dict[str, str] | None:
    """Return labels by which the node matches the pod's selector and affinity; None where none do."""
    affinity = pod.spec.affinity and pod.spec.affinity.node_affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else ()
    for term in terms or (NodeSelectorTerm(),):
        rules = [rule for rule in term.match_expressions if rule.operator in ("In", "Exists")]
        required = pod.spec.node_selector | {rule.key: next(iter(rule.values), "") for rule in rules}
        missing = {key: value for key, value in required.items() if node.metadata.labels.get(key) != value}
        labels = node.metadata.labels | missing
        there = replace(node, metadata=replace(node.metadata, labels=labels))
        identity = any(key in _IDENTITY or key.startswith(_PLACE) for key in missing)
        if missing and not identity and matches_required_affinity(pod, there):
            return missing
    return None


def without_node_affinity(pod: Pod) -> tuple[Pod, str]:
    """Return the pod without node selector and required node affinity, and what these were."""
    spec, rules = pod.spec, []
    if spec.node_selector:
        labels = ", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
        rules.append(f"node selector {labels}")
        spec = replace(spec, node_selector={})
    affinity = spec.affinity and spec.affinity.node_affinity
    if spec.affinity and affinity and affinity.required:
        rules.append("required node affinity")
        spec = replace(spec, affinity=replace(spec.affinity, node_affinity=replace(affinity, required=None)))
    return replace(pod, spec=spec), " and ".join(rules)


def without_pod_rules(pod: Pod) -> Iterator[tuple[str, Pod]]:
    """Yield the pod without one of its rules about other pods, and the rule's name."""
    affinity = pod.spec.affinity or Affinity()
    rules = {
        "podAffinity": (affinity.pod_affinity, replace(affinity, pod_affinity=msgspec.Raw())),
        "podAntiAffinity": (affinity.pod_anti_affinity, replace(affinity, pod_anti_affinity=msgspec.Raw())),
    }
    for rule, (raw, free) in rules.items():
        if bytes(raw):
            yield rule, replace(pod, spec=replace(pod.spec, affinity=free))
    if bytes(pod.spec.topology_spread_constraints):
        spec = replace(pod.spec, topology_spread_constraints=msgspec.Raw())
        yield "topologySpreadConstraints", replace(pod, spec=spec)


@dataclass(frozen=True, slots=True)
class Requests:
    """The amounts that a pod requests, made smaller in the container that requests most of each."""

    pod: Pod

    def fitted(self, left: Mapping[str, int], make: Callable[[Pod, Reason], T]) -> T | None:
        """Return the pod with what is left of the first resource of which it requests too much.

        A request for an extended resource of which nothing is left is dropped.
        """
        for name, amount in sorted(PodInfo.of(self.pod).requests.items()):
            over = amount - left.get(name, 0)
            if over > 0 and name != "cpu" and (pod := self._less(name, over)):
                return make(pod, self._reason(name, amount - over, amount))
            if over >= amount > 0 and "/" in name:
                kinds = (self.pod.spec.containers, self.pod.spec.init_containers)
                own, init = (tuple(_without_amount(one, name) for one in of) for of in kinds)
                spec = replace(self.pod.spec, containers=own, init_containers=init)
                return make(replace(self.pod, spec=spec), Reason(Code.DROP_REQUEST, (name,)))
        return None

    def fewer_cpus(self, left: int) -> Iterator[tuple[Pod, Reason]]:
        """Yield the pod with one CPU less, two CPUs less, and so on, all within the milliCPU left."""
        requested = PodInfo.of(self.pod).requests.get("cpu", 0)
        whole = 1000 * (-(-requested // 1000))
        for milli in range(min(whole - 1000, left // 1000 * 1000), 0, -1000):
            pod = self._less("cpu", requested - milli)
            if pod is None:  # no container requests as much; and none does for even fewer CPUs
                return
            yield pod, self._reason("CPU", milli // 1000, requested)

    @staticmethod
    def _reason(name: str, now: int, before: int) -> Reason:
        if name == "CPU":
            what, amounts = "CPU" if now == 1 else "CPUs", (str(now), str(quantity.of_milli(before)))
        else:
            what, amounts = name, (_in_words(name, now), _in_words(name, before))
        return Reason(Code.REQUEST_LESS, (what, *amounts))

    def _less(self, name: str, by: int) -> Pod | None:
        containers = list(self.pod.spec.containers)
        amounts = [_amount(one.resources, name) for one in containers]
        most = max(range(len(containers)), key=amounts.__getitem__)
        rest = amounts[most] - by
        if rest <= 0 or self.pod.spec.resources is not None:
            return None
        text, old = str(quantity.of_milli(rest)) if name == "cpu" else str(rest), containers[most].resources
        limits = old.limits
        if name in limits and amounts[most] == _amount(replace(old, requests={}), name):
            limits = {**limits, name: text}  # It follows an equal request: a Guaranteed pod stays one.
        resources = replace(old, requests={**old.requests, name: text}, limits=limits)
        containers[most] = replace(containers[most], resources=resources)
        return replace(self.pod, spec=replace(self.pod.spec, containers=tuple(containers)))


def _amount(resources: ResourceRequirements, name: str) -> int:
    text = str(resources.requests.get(name, resources.limits.get(name, "0")))
    try:
        return quantity.milli(text) if name == "cpu" else quantity.value(text)
    except QuantityError:
        return 0


def _without_amount(container: Container, name: str) -> Container:
    old = container.resources
    requests, limits = (
        {key: amount for key, amount in amounts.items() if key != name}
        for amounts in (old.requests, old.limits)
    )
    return replace(container, resources=replace(old, requests=requests, limits=limits))


def _in_words(name: str, amount: int) -> str:
    if name == "memory" or name.startswith("hugepages-") or name == "ephemeral-storage":
        for size, unit in _UNITS:
            if amount >= 16 * size:
                return f"{amount // size}{unit}"
    return str(amount)
