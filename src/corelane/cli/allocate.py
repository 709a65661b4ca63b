"""`corelane allocate`: the CPUs that pods would get on a node, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from corelane.cli import _kubelet
from corelane.cli._errors import Command, Fault
from corelane.cli._options import FILE, choice, file, gathered, machine, many, output, text

if TYPE_CHECKING:
    from corelane.app.allocate import PoolOverrides
    from corelane.workload import PlacementSpec, PodRequest


@dataclass(frozen=True, slots=True)
class PodOptions:
    """The pods: a manifest, or else requests of one container; and how its CPUs are to be placed."""

    cpus: str | None = None
    memory: str | None = None
    hugepages: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    filename: tuple[Path, ...] = ()
    placement: Mapping[str, Any] = field(default_factory=dict)
    """The placement options that are given, by parameter name."""

    @classmethod
    def of(cls, **values: Any) -> PodOptions:
        """Raises Fault for options that contradict each other."""
        made = cls(**_own_fields(cls, values), placement=_given(values))
        if (made.cpus is None) == (not made.filename):
            raise Fault("give either --cpus N or -f POD.yaml")
        if made.filename and (made.memory or made.hugepages or made.devices):
            raise Fault(
                "--memory, --hugepages and --device need --cpus; with -f the manifest has the requests"
            )
        if made.filename and made.placement:
            flag = _flags(made.placement)[0]
            raise Fault(f"{flag} needs --cpus; with -f use the pod's labels and annotations")
        if "bind_required" in made.placement and "bind" not in made.placement:
            raise Fault("--bind-required: no bind policy: give --bind")
        return made

    def requests(self) -> tuple[PodRequest, ...]:
        """Return what the pods request. Raises SettingsError."""
        from corelane.app import pod_manifests

        if self.filename:
            found = pod_manifests.pods(*self.filename)
            if found.skipped:
                kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(found.skipped.items()))
                click.echo(f"note: skipped, without pods known here: {kinds}", err=True)
            return found.requests
        request = pod_manifests.pod_request(self.cpus or "", self.memory or "", self.hugepages, self.devices)
        return (replace(request, placement_spec=self._placement_spec()),)

    def _placement_spec(self) -> PlacementSpec:
        from corelane import workload

        def value(name: str, kind: Callable[[str], Any]) -> Any:
            return kind(self.placement[name]) if name in self.placement else None

        level = value("exclusive", workload.TopologyLevel)
        return workload.PlacementSpec(
            qos=value("qos", workload.PodQOS),
            bind=value("bind", workload.BindPolicy),
            bind_required="bind_required" in self.placement,
            exclusive_policy=value("exclusive_policy", workload.ExclusivePolicy),
            exclusive=workload.Exclusivity(level, required=True) if level else None,
            strategy=value("strategy", workload.NUMAStrategy),
            numa=value("numa_policy", workload.NUMAPolicy),
            cpu_policy=value("cpu_policy", workload.CPUPolicy),
            core_kind=self.placement.get("core_kind"),
        )


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """The node's machine and state file, its policy and allocator, and settings under policy `pools`."""

    machine: str | None
    state: Path | None
    policy: str | None
    allocator: str | None
    compare: bool
    node_config: Path | None
    pools: Mapping[str, Any]
    """The options that are given for policy `pools`, by parameter name."""

    @classmethod
    def of(cls, **values: Any) -> NodeOptions:
        """Return the options, with the policy of the file of settings where no other is given."""
        from corelane.app import nodefile

        made = cls(**_own_fields(cls, values), pools=_given(values))
        if made.policy or not made.node_config:
            return made
        return replace(made, policy=nodefile.load(made.node_config).policy)

    def overrides(self) -> PoolOverrides:
        """Return the settings of the node beside its kubelet's. Raises Fault."""
        from corelane.app.allocate import PoolOverrides

        return PoolOverrides(
            allocator="" if self.allocator in (None, "kubelet") else str(self.allocator),
            labels=_labels(self.pools.get("node_labels", ())),
            config=self.node_config,
            **{name: value for name, value in self.pools.items() if name != "node_labels"},
        )


def _policy(pods: PodOptions, node: NodeOptions, *, version: str | None, of_kubelet: bool) -> str:
    """Return the node policy that the options amount to: pools, as `corelane up` has it, by default.

    Static where they describe a kubelet's CPU manager (`of_kubelet`), or its state file is given. Raises
    Fault where they contradict each other.
    """
    allocator = node.allocator
    needs_pools = [*_flags(node.pools), *_flags(pods.placement)]
    if node.compare and (allocator or node.policy not in (None, "pools")):
        raise Fault("--compare shows all allocators; leave out --allocator and --policy")
    needed = "static" if allocator == "kubelet" else None
    if not needed and (allocator or node.compare or needs_pools):
        needed = "pools"
    if node.policy and needed and node.policy != needed:
        option = f"--allocator {allocator}" if allocator else needs_pools[0]
        raise Fault(f"{option} needs --policy {needed}, not {node.policy}")
    if allocator == "kubelet" and needs_pools:
        raise Fault(f"{needs_pools[0]} needs --policy pools, not --allocator kubelet")
    if (node.policy or needed) == "pools" and version and not node.compare:
        raise Fault(
            "--kubernetes-version needs --policy static: it asks for the exact answer of that kubelet"
        )
    return node.policy or needed or ("static" if of_kubelet or _is_kubelets(node.state) else "pools")


def _is_kubelets(state: Path | None) -> bool:
    """Whether a state file is a kubelet's rather than corelane's ledger."""
    if state is None or not state.is_file():
        return state is not None
    with state.open("rb") as file:
        return b'"corelane-ledger"' not in file.read(1 << 16)


def _own_fields(kind: type[PodOptions | NodeOptions], values: dict[str, Any]) -> dict[str, Any]:
    """Remove the values of a class' own fields, and return them."""
    return {one.name: values.pop(one.name) for one in fields(kind) if one.name in values}


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, False, ())}


def _flags(given: Iterable[str]) -> list[str]:
    return [
        "--" + name.removesuffix("s" if name == "node_labels" else "").replace("_", "-") for name in given
    ]


def _labels(texts: Iterable[str]) -> dict[str, str]:
    labels = {}
    for pair in texts:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise Fault(f"--node-label: {pair!r} is not KEY=VALUE")
        labels[key] = value
    return labels


pod_options = gathered(
    "pods",
    PodOptions.of,
    text("--cpus", "N", "CPU request of the one container of a Guaranteed pod."),
    text("--memory", "SIZE", "Its memory request, such as 8Gi."),
    many("--hugepages", "SIZE=AMOUNT", "Its request of huge pages, such as 2Mi=512Mi"),
    many("--device", "NAME=COUNT", "Its request of devices, such as nvidia.com/gpu=1", "devices"),
    click.option(
        *("-f", "--filename"),
        type=FILE,
        multiple=True,
        help="A manifest of pods, admitted in their order, instead of --cpus; may be repeated.",
    ),
    choice("--qos", "LSE LSR LS BE SYSTEM", "Koordinator's QoS class."),
    choice(
        "--bind",
        "FullPCPUs SpreadByPCPUs ConstrainedBurst",
        "CPU bind policy, preferred unless --bind-required: whole cores, one CPU per core, or any CPUs of "
        "one NUMA node.",
    ),
    click.option("--bind-required", is_flag=True, help="Reject the pod if --bind cannot be satisfied."),
    choice(
        "--exclusive-policy",
        "PCPULevel NUMANodeLevel",
        "Preferably share no core, or no NUMA node, with pods of the same policy.",
    ),
    choice(
        "--exclusive",
        "core l3 numa",
        "Share no core, L3 domain or NUMA node with CPUs bound by other pods (required).",
    ),
    choice("--numa-policy", "BestEffort Restricted SingleNUMANode", "NUMA topology policy of the pod."),
    choice(
        "--strategy",
        "MostAllocated LeastAllocated DistributeEvenly",
        "Choose NUMA nodes with fewer free CPUs, with more free CPUs, or the same number from each.",
    ),
    choice("--cpu-policy", "none numa exclusive immovable", "gocrane's annotation cpu-policy."),
    choice("--core-kind", "P M E", "Only cores of this kind: performance, medium or efficiency cores."),
)
"""All options that describe the pods."""

node_options = gathered(
    "node",
    NodeOptions.of,
    machine,
    file(
        "--state",
        "CPUs allocated already: a kubelet's cpu_manager_state, or corelane's ledger.json.  [default: none]",
    ),
    choice(
        "--policy",
        "none static pools",
        "Node policy.  [default: pools; static with options, file or state of a kubelet's CPU manager]",
    ),
    choice(
        "--allocator",
        "kubelet koordinator optimal",
        "The allocator that picks CPUs: kubelet (policy static), koordinator or optimal (policy pools).",
    ),
    click.option("--compare", is_flag=True, help="Compare the answers of the three allocators."),
    file(
        "--node",
        "Manifest of the Node (settings), of its NodeResourceTopology (machine, bound CPUs), or both.",
    ),
    file("--node-config", "The node's settings as `corelane up` takes them; options override the file."),
    many(
        "--node-label",
        "KEY=VALUE",
        "A label of the Node, such as node.koordinator.sh/cpu-bind-policy=FullPCPUsOnly",
        "node_labels",
    ),
    text("--isolate", "LIST", "CPUs isolated by the kernel.  [default: the machine's]"),
    choice(
        "--isolated-cpus",
        "ignore exclude exclusive-only",
        "Use of isolated CPUs: like others, not at all, or for exclusive CPUs only.  [default: ignore]",
    ),
    choice(
        "--guaranteed-default",
        "LSR LS",
        "Koordinator's class of Guaranteed pods without a label.  [default: LSR]",
    ),
    click.option("--be-minimum", type=click.IntRange(0), help="Minimum CPUs of the BE pool.  [default: 1]"),
    click.option(
        "--strict-requests",
        is_flag=True,
        help="Reject LSE and LSR pods whose CPU request is not an integer or differs from the limit.",
    ),
)
"""All options that describe the node beside its kubelet."""


_KUBELETS = (
    "kubernetes_version",
    "kubelet_config",
    "options",
    "topology_policy",
    "topology_scope",
    "topology_options",
)
"""Options that describe a kubelet's CPU and topology managers."""


@click.command(cls=Command)
@pod_options
@node_options
@gathered(
    "kubelet",
    dict,
    _kubelet.settings_of_kubelet,
    _kubelet.resources,
    choice("--topology-scope", "container pod", "Topology manager scope.  [default: container]"),
    many(
        "--topology-option",
        "NAME=VALUE",
        "A topology manager option, such as prefer-closest-numa-nodes=true",
        "topology_options",
    ),
)
@output("table json svg")
def allocate(pods: PodOptions, node: NodeOptions, kubelet: dict[str, Any], output: str) -> None:
    """Show which CPUs a pod would get on a node, and why. Nothing is changed.

    The answer has each step of the decision and the runner-up; with memory, huge pages or devices, their NUMA
    nodes and the topology hints; under policy pools, each term of the objective, and for a rejected pod the
    changes by which it would fit.

    The decision is that of corelane's node agent. With --kubernetes-version it is exactly that of the
    kubelet, which may leave the shared pool empty. Exits with 1 if a pod is rejected.

    \b
    corelane allocate --cpus 4
    corelane allocate --cpus 16 --machine 'socket:2 core:12 smt:2' --option full-pcpus-only=true
    corelane allocate -f pod.yaml --state /var/lib/kubelet/cpu_manager_state --reserved-cpus 0,32
    corelane allocate --cpus 8 -o svg > cpus.svg
    corelane allocate --cpus 6 --policy pools --qos LSE --exclusive core --numa-policy SingleNUMANode
    corelane allocate -f pods.yaml --compare --machine 'socket:2 numa:2 core:16 smt:2'
    corelane allocate --cpus 4 --memory 8Gi --device nvidia.com/gpu=1 --machine 'socket:2 core:8 smt:2' \\
      --memory-policy Static --reserved-memory 0:memory=1Gi --node-device nvidia.com/gpu=gpu0@0,gpu1@1
    """  # noqa: D301 - click wants the character itself
    if node.compare and output == "svg":
        raise Fault("--compare has no drawing; use -o table or -o json")
    of_kubelet = any(kubelet[name] for name in _KUBELETS)
    policy = _policy(pods, node, version=kubelet["kubernetes_version"], of_kubelet=of_kubelet)
    from corelane.app import allocate as command
    from corelane.app.allocate import NodeQuery

    settings = _kubelet.settings({**kubelet, "policy": policy})
    resources = _kubelet.node_resources(kubelet)
    where = NodeQuery(node.machine, node.state, settings, resources, node.overrides())
    answer = command.compare if node.compare else command.main
    raise SystemExit(answer(pods.requests(), where, output, click.echo))
