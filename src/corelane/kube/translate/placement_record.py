"""Write a placement into a pod's annotations: the scheduler's proposal, and later what the agent applied.

Koordinator's `resource-status` gives one CPU set to all containers and removes it from the shared pool, so it
is written only where this is the case. It also names amounts by NUMA node (`numaNodeResources`) and the
sockets and NUMA nodes in whose pools a pod without exclusive CPUs runs (`cpuSharedPools`). Where
containers differ, `corelane.io/container-cpusets` names the CPUs of each; containers that it leaves out run
in the shared pool.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.keys import CONTAINER_CPUSETS, PLACEMENT_REASONS, RESOURCE_SPEC, RESOURCE_STATUS
from corelane.kube.pod import Pod
from corelane.kube.translate import koordlet, pod_requests
from corelane.kube.translate.fields import TranslationError, annotation, json_object
from corelane.kube.translate.placement_annotations import (
    OPEN_POLICIES,
    PREFERRED,
    REQUIRED,
    RESOLVED,
    RESOURCE_SPEC_MEMBERS,
    ResourceStatus,
    own_resource_spec,
    stripped,
    unresolved_resource_spec,
)
from corelane.machine.model import Machine
from corelane.quantity import Quantity
from corelane.reasons import Reason, sentence
from corelane.workload import BindPolicy, CPUPolicy
from corelane.workload.request import Amounts

_ABSENT: Final = {RESOURCE_STATUS: "{}", CONTAINER_CPUSETS: ""}
"""Koordinator's reader rejects "" as invalid; of ours, an empty object gives no container CPUs."""
_LONGEST_REASONS: Final = 1024
"""Characters for each container."""


def proposal_annotations(
    assignments: Mapping[str, CPUSet],
    pod: Pod,
    machine: Machine | None = None,
    zone: CPUSet | None = None,
    numa_amounts: Mapping[int, Amounts] | None = None,
) -> dict[str, str]:
    """Return the annotations that record `assignments` (container name to its exclusive CPUs) on a pod.

    The other containers run in the shared pool of the machine's NUMA nodes `zone`; None is the whole pool.
    `numa_amounts` are all that is recorded by NUMA node where a scheduler counts so; None is not known.
    A record that is already on the pod, from a copied manifest for example, is overwritten by a value that
    counts as absent: a Binding can add annotations but not remove them.
    """
    exclusive = {name: cpus for name, cpus in assignments.items() if cpus}
    stale = {key: text for key, text in _ABSENT.items() if key in pod.metadata.annotations}
    if numa_amounts is not None and len(set(exclusive.values())) <= 1:
        common = next(iter(exclusive.values()), None)
        amounts = {
            node: {name: str(_quantity(name, amount)) for name, amount in of_node.items()}
            for node, of_node in numa_amounts.items()
        }
        return stale | _status_annotation(common, amounts)
    return stale | _record(exclusive, pod, machine, zone)


def _quantity(name: str, amount: int) -> Quantity:
    if name == "cpu":
        return quantity.of_milli(amount)
    binary = name == "memory" or name.startswith("hugepages-")
    return quantity.of_value(amount, quantity.BINARY_SI if binary else quantity.DECIMAL_SI)


def _record(
    assignments: Mapping[str, CPUSet], pod: Pod, machine: Machine | None, zone: CPUSet | None
) -> dict[str, str]:
    places = koordlet.places(machine, zone) if machine and zone else ()
    if not assignments:
        # The pod's CPU request is for upstream's agent; of several nodes the shares are not known.
        amounts = {}
        if zone and places and len(zone) == 1 and (milli := pod_requests.requests(pod).get("cpu", 0)):
            amounts = {next(iter(zone)): {"cpu": str(quantity.of_milli(milli))}}
        return _status_annotation(amounts=amounts, pools=places)
    containers = {container.name for container in (*pod.spec.init_containers, *pod.spec.containers)}
    sets = set(assignments.values())
    # Koordinator has no word for CPUs that stay in the shared pool.
    immovable = pod.metadata.annotations.get(keys.CRANE_CPU_POLICY, "").strip() == CPUPolicy.IMMOVABLE
    if len(sets) == 1 and containers <= assignments.keys() and not immovable:
        common, nodes = sets.pop(), machine.numa_masks if machine else ()
        counts = {node: (mask & common.mask).bit_count() for node, mask in nodes}
        by_node = {node: {"cpu": str(count)} for node, count in counts.items() if count and len(nodes) > 1}
        return _status_annotation(common, by_node)
    own = {name: str(cpus) for name, cpus in sorted(assignments.items())}
    return {CONTAINER_CPUSETS: msgspec.json.encode(own).decode(), **_status_annotation(pools=places)}


def _status_annotation(
    cpus: CPUSet | None = None,
    amounts: Mapping[int, Mapping[str, str]] | None = None,
    pools: Iterable[tuple[int, int]] = (),
) -> dict[str, str]:
    text = dump_resource_status(ResourceStatus(cpus or CPUSet(), amounts or {}, tuple(pools)))
    return {RESOURCE_STATUS: text} if text != "{}" else {}


def dump_resource_status(status: ResourceStatus) -> str:
    """Return the text of `resource-status` in upstream's field order, without empty parts."""
    parts: dict[str, Any] = {}
    if status.cpus:
        parts["cpuset"] = str(status.cpus)
    if status.amounts:
        parts["numaNodeResources"] = [
            {"node": node, "resources": dict(sorted(amounts.items()))}
            for node, amounts in sorted(status.amounts.items())
        ]
    if status.pools:
        parts["cpuSharedPools"] = [{"socket": socket, "node": node} for socket, node in sorted(status.pools)]
    return msgspec.json.encode(parts).decode()


def resolved_spec(pod: Pod, bind: BindPolicy | None, *, required: bool) -> dict[str, str]:
    """Return the `resource-spec` with the policy by which a pod was bound; empty where it does not change.

    As upstream's `appendResourceSpecIfMissed`: a policy that the node requires, one that the pod left to the
    scheduler (`Default`), or a preferred one where the pod names none. A policy that an earlier binding wrote
    into a pod that this one is a copy of is replaced.
    """
    text = pod.metadata.annotations.get(RESOURCE_SPEC, "")
    if not text and bind is None:
        return {}
    where = annotation(RESOURCE_SPEC)
    try:
        own = unresolved_resource_spec(where, text)
        open_names = _open_members(own_resource_spec(where, text), required=required) if bind else []
    except TranslationError:
        return {}
    if filled := {name: stripped(own.get(name)) or "" for name in open_names}:
        own |= dict.fromkeys(filled, str(bind)) | {RESOLVED: filled | {"to": str(bind)}}
    unchanged = own == json_object(where, text, RESOURCE_SPEC_MEMBERS)
    return {} if unchanged else {RESOURCE_SPEC: msgspec.json.encode(own).decode()}


def _open_members(spec: Mapping[str, Any], *, required: bool) -> list[str]:
    if required and spec[REQUIRED] in OPEN_POLICIES:
        return [REQUIRED, PREFERRED] if spec[PREFERRED] == "Default" else [REQUIRED]
    if spec[PREFERRED] == "Default" or not (spec[REQUIRED] or spec[PREFERRED]):
        return [PREFERRED]
    return []


def reasons_annotation(reasons: Iterable[Reason]) -> dict[str, str]:
    """Return the annotation with each container's reasons in one line; empty without reasons."""
    by_container: dict[str, list[str]] = {}
    for reason in reasons:
        by_container.setdefault(reason.container, []).append(sentence(reason))
    lines = {name: "; ".join(texts)[:_LONGEST_REASONS] for name, texts in by_container.items()}
    return {PLACEMENT_REASONS: msgspec.json.encode(lines).decode()} if lines else {}


def placement_reasons(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return container name to its reasons, as `reasons_annotation` wrote them; empty if not readable."""
    try:
        return msgspec.json.decode(annotations.get(PLACEMENT_REASONS, "{}"), type=dict[str, str])
    except (ValueError, RecursionError):
        return {}
