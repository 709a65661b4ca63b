"""Options for a kubelet's settings, shared by commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from corelane.cli._errors import Fault

if TYPE_CHECKING:
    from corelane.app.kubelet_settings import KubeletOptions, NodeResources

_F = TypeVar("_F", bound=Callable[..., Any])

_POLICY = (click.option("--policy", type=click.Choice(["none", "static"]), help="CPU manager policy."),)
_OPTIONS = (
    click.option(
        "--reserved-cpus",
        metavar="LIST",
        help="Reserved CPUs, such as 0,16; overrides the file's reservations.",
    ),
    click.option(
        "--reserved", metavar="N", help="CPUs that kubeReserved and systemReserved reserve, such as 2."
    ),
    click.option(
        "--option",
        "options",
        metavar="NAME=VALUE",
        multiple=True,
        help="CPU manager policy option, such as full-pcpus-only=true; may be repeated.",
    ),
    click.option(
        "--topology-policy",
        type=click.Choice(["none", "best-effort", "restricted", "single-numa-node"]),
        help="Topology manager policy.",
    ),
    click.option(
        "--kubelet-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Configuration file of the kubelet; options override it.",
    ),
    click.option("--kubernetes-version", metavar="1.N", help="Release of the kubelet, such as 1.36."),
)
_RESOURCES = (
    click.option(
        "--memory-policy",
        type=click.Choice(["None", "Static"], case_sensitive=False),
        help="Memory manager policy.  [default: None]",
    ),
    click.option(
        "--reserved-memory",
        metavar="NODE:TYPE=SIZE,…",
        multiple=True,
        help="As the kubelet's flag, such as 0:memory=1Gi; may be repeated.",
    ),
    click.option(
        "--node-memory",
        metavar="NODE:TYPE=SIZE,…",
        multiple=True,
        help="Memory of a NUMA node, such as 0:memory=64Gi,hugepages-1Gi=8Gi; may be repeated.  "
        "[default: the machine's]",
    ),
    click.option(
        "--node-device",
        "node_devices",
        metavar="NAME=ID@NODE,…",
        multiple=True,
        help="Devices and their NUMA nodes, such as nvidia.com/gpu=gpu0@0,gpu1@1; may be repeated.",
    ),
    click.option(
        "--feature-gate",
        "gates",
        metavar="NAME=true|false",
        multiple=True,
        help="PodLevelResourceManagers, which is off by default.",
    ),
)
machine = click.option(
    "--machine",
    metavar="SOURCE",
    help="The machine: a spec such as 'socket:2 core:8 smt:2', a snapshot, lscpu output, or hwloc XML.  "
    "[default: this one]",
)


def kubelet(command: _F) -> _F:
    """All options that describe a kubelet."""
    return _with(_POLICY, settings_of_kubelet(command))


def settings_of_kubelet(command: _F) -> _F:
    """As `kubelet`, but for the policy."""
    return _with(_OPTIONS, command)


def _with(options: Iterable[Callable[[_F], _F]], command: _F) -> _F:
    for option in reversed(tuple(options)):
        command = option(command)
    return command


def resources(command: _F) -> _F:
    """All options that describe a node's memory and devices, and its gates."""
    return _with(_RESOURCES, command)


def node_resources(given: Mapping[str, Any]) -> NodeResources:
    """Return the node's memory and devices that the options give."""
    from corelane.app import kubelet_settings

    return kubelet_settings.node_resources(given["node_memory"], given["node_devices"])


def settings(given: Mapping[str, Any]) -> KubeletOptions:
    """Return the kubelet's settings that the options give, completed by its configuration file."""
    from corelane.app import kubelet_settings

    if given["reserved"] and given["reserved_cpus"]:
        raise Fault("--reserved-cpus and --reserved both reserve CPUs; give one of them")
    reserved_memory = given.get("reserved_memory")
    gates = _pairs("--feature-gate", given.get("gates", ()), "PodLevelResourceManagers=true")
    options = kubelet_settings.KubeletOptions(
        policy=given["policy"] or "",
        reserved_cpus=given["reserved_cpus"] or "",
        reserved=given["reserved"] or "",
        options=_pairs("--option", given["options"], "full-pcpus-only=true"),
        topology_policy=given["topology_policy"] or "",
        topology_scope=given.get("topology_scope") or "",
        topology_options=_pairs(
            "--topology-option", given.get("topology_options", ()), "prefer-closest-numa-nodes=true"
        ),
        memory_policy=(given.get("memory_policy") or "").title(),
        reserved_memory=(
            kubelet_settings.memory_by_node("--reserved-memory", reserved_memory) if reserved_memory else None
        ),
        pod_level=kubelet_settings.pod_level(gates),
        version=given["kubernetes_version"] or "",
    )
    config = given["kubelet_config"]
    return kubelet_settings.from_file(config, options) if config else options


def _pairs(option: str, texts: Iterable[str], example: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Fault(f"{option}: {text!r} is not NAME=VALUE, such as {example}")
        if name in pairs:
            raise Fault(f"{option}: {name} is given twice; give it once")
        pairs[name] = value
    return pairs
