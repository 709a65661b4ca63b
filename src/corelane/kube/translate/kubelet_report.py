"""What a kubelet beside the agent does with CPUs, as published: on the node's topology and on its pods."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from corelane import quantity
from corelane.cpuset import CPUSet, CPUSetError
from corelane.kube import keys
from corelane.kube.objects import KubeletConfiguration
from corelane.kube.pod import Pod
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.model import Machine
from corelane.node import NodeConfigError
from corelane.node.config import NodeConfig
from corelane.node.ledger import new
from corelane.quantity import QuantityError


def kubelet_settings(configuration: KubeletConfiguration, machine: Machine) -> KubeletSettings:
    """Return a kubelet's settings; without a CPU list its reserved CPUs are picked as the kubelet picks them.

    As in koordlet, a kubelet of policy none reserves no CPUs by their ids.
    """
    static = configuration.cpu_manager_policy == "static"
    return KubeletSettings(
        "static" if static else "none",
        configuration.cpu_manager_policy_options if static else {},
        _reserved(configuration, machine) if static else CPUSet(),
        configuration.topology_manager_policy,
        configuration.topology_manager_scope,
    )


def _reserved(configuration: KubeletConfiguration, machine: Machine) -> CPUSet:
    """Reserved CPUs; empty where the kubelet's own check would fail."""
    try:
        if configuration.reserved_system_cpus:
            return CPUSet.parse(configuration.reserved_system_cpus) & machine.online
        reservations = (configuration.kube_reserved, configuration.system_reserved)
        count = -(
            -sum(quantity.milli(str(reservation.get("cpu", "0"))) for reservation in reservations) // 1000
        )
        hardware = replace(machine, allowed=machine.online)
        return new(hardware, NodeConfig("static", reserved_count=count)).reserved if count else CPUSet()
    except (CPUSetError, NodeConfigError, QuantityError):
        return CPUSet()


def kubelet_cpusets(containers: Mapping[str, CPUSet]) -> dict[str, str | None]:
    """Return a pod's annotation of the exclusive CPUs that the kubelet gave its containers; None removes it.

    No reader of corelane's takes it for a proposal: it names what the kubelet did.
    """
    cpus = {name: str(cpus) for name, cpus in sorted(containers.items()) if cpus}
    return {keys.KUBELET_CPUSETS: msgspec.json.encode(cpus).decode() if cpus else None}


def differing_cpusets(
    assignments: Mapping[str, Mapping[str, CPUSet]], published: Iterable[tuple[str, Mapping[str, str]]]
) -> dict[str, dict[str, str | None]]:
    """Return UID to the annotation that a pod lacks or has outdated.

    `assignments` are the kubelet's CPUs by pod UID and container; `published` are the UIDs and annotations of
    the node's pods.
    """
    changes = {}
    for uid, annotations in published:
        expected = kubelet_cpusets(assignments.get(uid, {}))
        if annotations.get(keys.KUBELET_CPUSETS) != expected[keys.KUBELET_CPUSETS]:
            changes[uid] = expected
    return changes


def running_uid(pod: Pod) -> str:
    """Return the UID under which the kubelet runs a pod: for a static pod's mirror that of its manifest."""
    annotations = pod.metadata.annotations
    mirrors = keys.CONFIG_MIRROR in annotations  # users may set CONFIG_HASH on any pod
    return (annotations.get(keys.CONFIG_HASH) if mirrors else "") or pod.metadata.uid


def is_static(pod: Pod) -> bool:
    """Whether a pod is a static one as the kubelet lists it; its mirror has the same name and another UID."""
    annotations = pod.metadata.annotations
    source = annotations.get(keys.CONFIG_SOURCE, "api")
    return source != "api" and keys.CONFIG_MIRROR not in annotations
