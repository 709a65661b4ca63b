"""The options by which commands are told of a kubelet's CPU settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from corelane.cli._errors import Fault

if TYPE_CHECKING:
    from corelane.app.node_settings import NodeSettings
    from corelane.app.state.kubelet_settings import Settings

_F = TypeVar("_F", bound=Callable[..., Any])

_POLICY = (click.option("--policy", type=click.Choice(["none", "static"]), help="CPU manager policy."),)
_OPTIONS = (
    click.option(
        "--reserved-cpus", metavar="LIST", help="Reserved CPUs, such as 0,16; wins over --reserved."
    ),
    click.option(
        "--reserved", metavar="N", help="How much CPU kubeReserved and systemReserved reserve, such as 2."
    ),
    click.option(
        "--option",
        "options",
        metavar="NAME=VALUE",
        multiple=True,
        help="A CPU manager policy option, such as full-pcpus-only=true; may be repeated.",
    ),
    click.option(
        "--topology-policy",
        type=click.Choice(["none", "best-effort", "restricted", "single-numa-node"]),
        help="Topology manager policy.",
    ),
    click.option(
        "--kubelet-config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="The kubelet's configuration file; options given here win over it.",
    ),
    click.option("--kubernetes-version", metavar="1.N", help="The kubelet's release, such as 1.36."),
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
        help="As the kubelet's flag: 0:memory=1Gi; may be repeated.",
    ),
    click.option(
        "--node-memory",
        metavar="NODE:TYPE=SIZE,…",
        multiple=True,
        help="What a NUMA node has: 0:memory=64Gi,hugepages-1Gi=8Gi; may be repeated.  "
        "[default: the machine's]",
    ),
    click.option(
        "--node-device",
        "node_devices",
        metavar="NAME=ID@NODE,…",
        multiple=True,
        help="Devices and the NUMA nodes that they are near: nvidia.com/gpu=gpu0@0,gpu1@1; may be repeated.",
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


def node_settings(said: dict[str, Any]) -> NodeSettings:
    """What these options say; they are taken out of `said`."""
    from corelane.app.node_settings import NodeSettings

    return NodeSettings(
        memory_policy=(said.pop("memory_policy") or "").title(),
        reserved_memory=said.pop("reserved_memory"),
        memory=said.pop("node_memory"),
        devices=said.pop("node_devices"),
        gates=_pairs("--feature-gate", said.pop("gates"), "PodLevelResourceManagers=true"),
        config=said["kubelet_config"],
    )


def settings(
    *,
    policy: str | None,
    reserved_cpus: str | None,
    reserved: str | None,
    options: Iterable[str],
    topology_policy: str | None,
    kubelet_config: Path | None,
    kubernetes_version: str | None,
    topology_scope: str | None = None,
    topology_options: Iterable[str] = (),
) -> Settings:
    """What the options say, completed by the configuration file."""
    from corelane.app.state import kubelet_settings

    said = kubelet_settings.Settings(
        policy=policy or "",
        reserved_cpus=reserved_cpus or "",
        reserved=reserved or "",
        options=_pairs("--option", options),
        topology_policy=topology_policy or "",
        topology_scope=topology_scope or "",
        topology_options=_pairs("--topology-option", topology_options),
        version=kubernetes_version or "",
    )
    if said.reserved and said.reserved_cpus:
        raise Fault("--reserved-cpus and --reserved name two reservations: give one of them")
    return kubelet_settings.from_file(kubelet_config, said) if kubelet_config else said


def _pairs(option: str, texts: Iterable[str], example: str = "full-pcpus-only=true") -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Fault(f"{option}: {text!r} is not NAME=VALUE, such as {example}")
        if name in pairs:
            raise Fault(f"{option}: {name} is given twice")
        pairs[name] = value
    return pairs
