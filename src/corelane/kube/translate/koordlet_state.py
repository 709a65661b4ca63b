"""The state of a node with koordlet's NodeResourceTopology: Koordinator's pools, or the kubelet's policy.

Where the kubelet's CPU manager is static, it chooses the CPUs; a replay of its algorithm with its options,
reserved CPUs, policy and scope tells what it will choose. The pods whose CPUs koordlet reports are in both.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, cast

from corelane.cpuset import CPUSet
from corelane.kube import keys
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.translate import koordlet, koordlet_zones, node_labels
from corelane.kube.translate.fields import TranslationError, annotation
from corelane.kube.translate.node_labels import KubeletSettings, NodeLabels
from corelane.machine.model import Machine
from corelane.node import (
    Entry,
    NodeConfig,
    NodeConfigError,
    Origin,
    PoolOptions,
    StaticOptions,
    TopologyOptions,
    new,
)
from corelane.node.entries import WHOLE_POD, Sharing
from corelane.node.ledger import NodeState, usable_topology, with_entries
from corelane.placement.topologymanager import Policy, Scope
from corelane.workload import PodQOS

_NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
_KNOWN: Final[Mapping[str, str]] = {
    "BestEffort": "best-effort",
    "Restricted": "restricted",
    "SingleNUMANodePodLevel": "single-numa-node",
}
"""Words of `topologyPolicies` that Koordinator's scheduler reads."""
_UPSTREAM_OPTIONS: Final = PoolOptions(
    allocator="koordinator", guaranteed_default=PodQOS.LS, be_minimum=0, system_exclusive=True
)


def pools_state(
    published: NodeResourceTopology,
    machine: Machine,
    labels: Mapping[str, str],
    node_annotations: Mapping[str, str] = _NO_ANNOTATIONS,
    allocatable: int = 0,
) -> NodeState:
    """Return pools by upstream's rules, without the CPUs of kubelet, reservation and SYSTEM pods.

    `labels` and `node_annotations` are the Node's; of these only the amplification ratios count, which
    Koordinator's scheduler reads there, beside `allocatable` milliCPU. Raises TranslationError.
    """
    annotations = dict(published.metadata.annotations)
    annotations[keys.AMPLIFICATION] = node_annotations.get(keys.AMPLIFICATION, "")
    settings = node_labels.node_labels(labels, annotations)
    if settings.faults:
        raise settings.faults[0]
    kubelet, cpus = _as_upstream(published), usable_topology(machine)
    options = _upstreams_cpus(node_labels.pool_options(settings, kubelet, _UPSTREAM_OPTIONS, cpus), settings)
    reserved = kubelet.reserved & machine.usable
    config = NodeConfig("pools", reserved or None, pools=options, exact=True)
    state = with_kubelets_pods(NodeState(machine, config, cpus, reserved), published)
    zones = koordlet_zones.options(published, state, settings.amplification, allocatable)
    return replace(state, config=replace(config, koordinator=zones))


def _as_upstream(published: NodeResourceTopology) -> KubeletSettings:
    """The kubelet's settings with the topology policy that Koordinator's scheduler knows, else none.

    A kubelet without static CPU manager aligns no CPUs, so that no other word stands for a rejection.
    """
    policy = next((_KNOWN[word] for word in published.topology_policies if word in _KNOWN), "none")
    return replace(node_labels.published_kubelet(published), topology_policy=policy, topology_scope="pod")


def _upstreams_cpus(options: PoolOptions, settings: NodeLabels) -> PoolOptions:
    """Only CPUs named by id are withheld, and those of SYSTEM pods only where they are exclusive."""
    withheld = settings.reservation.cpus if settings.reservation else CPUSet()
    system = options.system if options.system_exclusive else CPUSet()
    return replace(options, withheld=withheld, system=system)


def static_state(published: NodeResourceTopology, machine: Machine, reserved_count: int = 0) -> NodeState:
    """Return the state that a kubelet with static CPU manager is in.

    `reserved_count` CPUs are reserved where the object names none. The pool options have what the kubelet's
    settings are in Koordinator's words, for pods that require something. Raises TranslationError, also for
    options of the kubelet that no replay knows.
    """
    kubelet = node_labels.published_kubelet(published)
    policies = kubelet.policies
    try:
        config = NodeConfig(
            "static",
            kubelet.reserved & machine.usable or None,
            None if kubelet.reserved else reserved_count or None,
            StaticOptions.parse(kubelet.options),
            pools=PoolOptions(node_bind=policies.bind, strategy=policies.strategy, numa=policies.numa),
            numa=TopologyOptions(
                cast("Policy", kubelet.topology_policy), cast("Scope", kubelet.topology_scope)
            ),
            exact=True,
        )
        return with_kubelets_pods(new(machine, config), published)
    except NodeConfigError as error:
        where = annotation(keys.CPU_MANAGER_POLICY)
        raise TranslationError(where, node_labels.dump_kubelet(kubelet), str(error)) from error


def with_kubelets_pods(state: NodeState, published: NodeResourceTopology) -> NodeState:
    """Return the state with the exclusive CPUs that koordlet reports of a kubelet's pods."""
    entries, pods = {}, {}
    static = state.config.policy == "static"
    for pod in koordlet.pod_allocations(published.metadata.annotations):
        if cpus := pod.cpus & state.usable:
            entry = Entry(
                pod.uid,
                WHOLE_POD,
                f"{pod.namespace}/{pod.name}",
                cpus,
                Sharing.ALONE,
                cls="Guaranteed" if static else PodQOS.LSR.value,
                origin=Origin.KUBELET,
                cpu_request=1000 * len(cpus),
            )
            entries[entry.key], pods[pod.uid] = entry, entry.cpu_request
    return with_entries(state, entries, pods) if entries else state
