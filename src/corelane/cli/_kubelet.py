"""Options for a kubelet's settings, shared by commands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from corelane.cli._errors import Fault
from corelane.cli._options import choice, file, many, text, together

if TYPE_CHECKING:
    from corelane.app.kubelet_settings import KubeletOptions, NodeResources

settings_of_kubelet = together(
    text("--reserved-cpus", "LIST", "Reserved CPUs, such as 0,16; overrides the file's reservations."),
    text("--reserved", "N", "CPUs that kubeReserved and systemReserved reserve, such as 2."),
    many("--option", "NAME=VALUE", "CPU manager policy option, such as full-pcpus-only=true", "options"),
    choice("--topology-policy", "none best-effort restricted single-numa-node", "Topology manager policy."),
    file("--kubelet-config", "Configuration file of the kubelet; options override it."),
    text("--kubernetes-version", "1.N", "Release of the kubelet, such as 1.36."),
)
"""All options that describe a kubelet, but for the policy."""

kubelet = together(choice("--policy", "none static", "CPU manager policy."), settings_of_kubelet)
"""All options that describe a kubelet."""

resources = together(
    click.option(
        "--memory-policy",
        type=click.Choice(["None", "Static"], case_sensitive=False),
        help="Memory manager policy.  [default: None]",
    ),
    many("--reserved-memory", "NODE:TYPE=SIZE,…", "As the kubelet's flag, such as 0:memory=1Gi"),
    click.option(
        "--node-memory",
        metavar="NODE:TYPE=SIZE,…",
        multiple=True,
        help="Memory of a NUMA node, such as 0:memory=64Gi,hugepages-1Gi=8Gi; may be repeated.  "
        "[default: the machine's]",
    ),
    many(
        "--node-device",
        "NAME=ID@NODE,…",
        "Devices and their NUMA nodes, such as nvidia.com/gpu=gpu0@0,gpu1@1",
        "node_devices",
    ),
    click.option(
        "--feature-gate",
        "gates",
        metavar="NAME=true|false",
        multiple=True,
        help="PodLevelResourceManagers, which is off by default.",
    ),
)
"""All options that describe a node's memory and devices, and its gates."""


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
    for pair in texts:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise Fault(f"{option}: {pair!r} is not NAME=VALUE, such as {example}")
        if name in pairs:
            raise Fault(f"{option}: {name} is given twice; give it once")
        pairs[name] = value
    return pairs
