"""The options by which `allocate` is told of a node's pools, and of what a pod wishes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from corelane.cli._errors import Fault

if TYPE_CHECKING:
    from corelane.app.allocate.node_source import PoolFlags
    from corelane.workload import PlacementSpec

_F = TypeVar("_F", bound=Callable[..., Any])

_ALLOCATORS = ("kubelet", "koordinator", "optimal")
_NODE = (
    click.option(
        "--policy",
        type=click.Choice(["none", "static", "pools"]),
        help="Node policy.  [default: static, or pools where anything said needs it]",
    ),
    click.option(
        "--allocator",
        type=click.Choice(_ALLOCATORS),
        help="Who picks: kubelet (policy static), koordinator or optimal (policy pools).",
    ),
    click.option("--compare", is_flag=True, help="The three allocators side by side."),
    click.option(
        "--node",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Manifest of the Node or its NodeResourceTopology, or both: settings, machine, who is bound.",
    ),
    click.option(
        "--node-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        metavar="FILE",
        help="The node's settings, as `corelane up` takes them; options given here go before.",
    ),
    click.option(
        "--node-label",
        "node_labels",
        metavar="KEY=VALUE",
        multiple=True,
        help="A label of the Node, such as node.koordinator.sh/cpu-bind-policy=FullPCPUsOnly.",
    ),
    click.option(
        "--isolate", metavar="LIST", help="CPUs that the kernel isolates.  [default: the machine's]"
    ),
    click.option(
        "--isolated-cpus",
        type=click.Choice(["ignore", "exclude", "exclusive-only"]),
        help="What the node does with isolated CPUs.  [default: ignore]",
    ),
    click.option(
        "--guaranteed-default",
        type=click.Choice(["LSR", "LS"]),
        help="What Guaranteed pods without a label are.  [default: LSR]",
    ),
    click.option("--be-minimum", type=click.IntRange(0), help="CPUs that best effort keeps.  [default: 1]"),
    click.option(
        "--strict-requests", is_flag=True, help="LSE and LSR need whole CPUs, limits equal to requests."
    ),
)
_WISHES = (
    click.option(
        "--qos", type=click.Choice(["LSE", "LSR", "LS", "BE", "SYSTEM"]), help="Koordinator's class."
    ),
    click.option(
        "--bind",
        type=click.Choice(["FullPCPUs", "SpreadByPCPUs", "ConstrainedBurst"]),
        help="Bind policy: preferred, unless --bind-required.",
    ),
    click.option("--bind-required", is_flag=True, help="The bind policy is a must."),
    click.option(
        "--exclusive-policy",
        type=click.Choice(["PCPULevel", "NUMANodeLevel"]),
        help="Keep off units of pods with the same policy, if that goes.",
    ),
    click.option(
        "--exclusive", type=click.Choice(["core", "l3", "numa"]), help="No other pod's CPUs there: a must."
    ),
    click.option(
        "--numa-policy",
        type=click.Choice(["BestEffort", "Restricted", "SingleNUMANode"]),
        help="How strictly CPUs lie together.",
    ),
    click.option(
        "--strategy",
        type=click.Choice(["MostAllocated", "LeastAllocated", "DistributeEvenly"]),
        help="From which NUMA nodes CPUs come.",
    ),
    click.option(
        "--cpu-policy",
        type=click.Choice(["none", "numa", "exclusive", "immovable"]),
        help="gocrane's cpu-policy.",
    ),
    click.option("--core-kind", type=click.Choice(["P", "M", "E"]), help="Only cores of this kind."),
)
_OF_NODE = (
    "node",
    "node_labels",
    "isolate",
    "isolated_cpus",
    "guaranteed_default",
    "be_minimum",
    "strict_requests",
)
_OF_POD = (
    "qos", "bind", "bind_required", "exclusive_policy", "exclusive", "numa_policy", "strategy", "cpu_policy",
    "core_kind",
)  # fmt: skip


def node(command: _F) -> _F:
    """All options that describe a node and its pools."""
    for option in reversed(_NODE):
        command = option(command)
    return command


def pod(command: _F) -> _F:
    """All options that say what a pod wishes."""
    for option in reversed(_WISHES):
        command = option(command)
    return command


def policy(said: dict[str, Any], *, filename: Path | None) -> str | None:
    """The node policy that these options come to. Raises Fault where they contradict one another."""
    allocator, compare = said["allocator"], said["compare"]
    named = said["policy"] or _named_in(said["node_config"])
    needs = [_flag(name) for name in (*_OF_NODE, *_OF_POD) if said[name] not in (None, False, ())]
    if filename and (of_pod := [_flag(name) for name in _OF_POD if said[name] not in (None, False)]):
        raise Fault(f"{of_pod[0]} goes with --cpus: a manifest says its own in labels and annotations")
    if said["bind_required"] and not said["bind"]:
        raise Fault("--bind-required: say which policy with --bind")
    if compare and (allocator or named not in (None, "pools")):
        raise Fault("--compare shows all allocators: leave --allocator and --policy out")
    wanted = "static" if allocator == "kubelet" else "pools" if allocator or compare or needs else None
    if named and wanted and named != wanted:
        why = f"--allocator {allocator}" if allocator else needs[0]
        raise Fault(f"{why} goes with --policy {wanted}, not {named}")
    if allocator == "kubelet" and needs:
        raise Fault(f"{needs[0]} goes with --policy pools, not with --allocator kubelet")
    if (named or wanted) == "pools" and said["kubernetes_version"] and not compare:
        raise Fault("--kubernetes-version goes with --policy static: it asks for that kubelet's exact answer")
    return named or wanted


def flags(said: dict[str, Any]) -> PoolFlags:
    """What they say of the node; they are taken out of `said`."""
    from corelane.app.allocate.node_source import PoolFlags, labels_of

    taken = {name: said.pop(name) for name in _OF_NODE}
    allocator = said.pop("allocator")
    return PoolFlags(
        allocator="" if allocator in (None, "kubelet") else allocator,
        labels=labels_of(taken["node_labels"]),
        node=taken["node"],
        config=said.pop("node_config"),
        isolate=taken["isolate"] or "",
        isolated_cpus=taken["isolated_cpus"] or "",
        guaranteed_default=taken["guaranteed_default"] or "",
        be_minimum=taken["be_minimum"],
        strict_requests=taken["strict_requests"],
    )


def placement_spec(said: dict[str, Any]) -> PlacementSpec:
    """What they say of the pod; they are taken out of `said`."""
    from corelane import workload

    taken = {name: said.pop(name) for name in _OF_POD}

    def word(name: str, kind: Callable[[str], Any]) -> Any:
        return kind(taken[name]) if taken[name] else None

    level = word("exclusive", workload.TopologyLevel)
    return workload.PlacementSpec(
        qos=word("qos", workload.PodQOS),
        bind=word("bind", workload.BindPolicy),
        bind_required=taken["bind_required"],
        exclusive_policy=word("exclusive_policy", workload.ExclusivePolicy),
        exclusive=workload.Exclusivity(level, required=True) if level else None,
        strategy=word("strategy", workload.NUMAStrategy),
        numa=word("numa_policy", workload.NUMAPolicy),
        cpu_policy=word("cpu_policy", workload.CPUPolicy),
        core_kind=taken["core_kind"],
    )


def _named_in(config: Path | None) -> str | None:
    from corelane.app import nodefile

    return nodefile.load(config).policy if config else None


def _flag(name: str) -> str:
    return "--" + name.removesuffix("s" if name == "node_labels" else "").replace("_", "-")
