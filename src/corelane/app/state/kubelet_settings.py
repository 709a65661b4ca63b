"""A kubelet's CPU settings, from options and from its configuration file, as a node's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from corelane import node, quantity
from corelane.app import machines
from corelane.app.settings_file import SettingsError
from corelane.app.state import files
from corelane.cpuset import CPUSet, CPUSetError
from corelane.machine import Machine
from corelane.node import NodeConfig, NodeState
from corelane.node.config import Policy
from corelane.placement.kubelet.picker import Version

__all__ = ["Settings", "config", "from_file", "hardware", "release", "start", "tree"]

OLDEST, NEWEST = 18, 38


@dataclass(frozen=True, slots=True)
class Settings:
    """What an operator says of the kubelet; "" and None mean that nothing was said."""

    policy: str = ""
    reserved_cpus: str = ""
    """`reservedSystemCPUs`, a CPU list; wins over `reserved`."""
    reserved: str = ""
    """`kubeReserved.cpu` + `systemReserved.cpu`, a quantity such as 2 or 1500m."""
    options: Mapping[str, str] = field(default_factory=dict)
    topology_policy: str = ""
    topology_scope: str = ""
    topology_options: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    """The kubelet's, such as 1.36 or v1.33.4."""
    source: str = ""
    """The configuration file that this was read from."""


def hardware(source: str | None) -> Machine:
    """The machine as a kubelet on it sees it: every online CPU, whatever this process is allowed."""
    machine = machines.load(source)
    return replace(machine, allowed=machine.online)


def release(text: str) -> int:
    """The minor number of a Kubernetes release: "v1.36.2" is 36. Raises SettingsError."""
    found = re.fullmatch(r"v?1\.([0-9]{1,3})(?:[.+-].*)?", text, re.ASCII)
    if not found or not OLDEST <= int(found[1]) <= NEWEST:
        raise SettingsError(
            f"--kubernetes-version: {text!r} is no release that corelane knows: "
            f"give one from 1.{OLDEST} to 1.{NEWEST}, such as 1.36"
        )
    return int(found[1])


def start(machine: Machine, settings: Settings, *, exact: bool = True) -> NodeState:
    """The node as a kubelet with these settings finds it when nothing was handed out yet.

    Raises SettingsError, or NodeConfigError with upstream's text.
    """
    return node.new(machine, config(settings, exact=exact))


def config(settings: Settings, *, exact: bool = True) -> NodeConfig:
    """As a node's settings; a static policy that answers as the kubelet (`exact`) needs a reservation."""
    version, policy = _version(settings.version), settings.policy or "static"
    if policy == "none" and settings.options:
        named = " ".join(f"{name}={value}" for name, value in sorted(settings.options.items()))
        raise SettingsError(f"--option: {named}: policy none has no options: leave them out")
    reserved, number = _reserved(settings), _count(settings)
    if policy == "static" and exact and reserved is None and number is None:
        raise SettingsError(
            "--reserved-cpus or --reserved: the static policy requires systemreserved.cpu + kubereserved.cpu "
            "to be greater than zero: give what this kubelet has, or --kubelet-config FILE"
        )
    options = node.StaticOptions.parse(settings.options, version)
    numa = node.TopologyOptions.parse(
        settings.topology_policy or "none", settings.topology_scope or "container", settings.topology_options
    )
    if "max-allowable-numa-nodes" not in settings.topology_options and not exact:
        numa = replace(numa, max_allowable_numa_nodes=None)
    return NodeConfig(cast("Policy", policy), reserved, number, options, numa, exact=exact)


def _reserved(settings: Settings) -> CPUSet | None:
    try:
        return CPUSet.parse(settings.reserved_cpus) or None
    except CPUSetError as error:
        where = _where(settings, "--reserved-cpus", "reservedSystemCPUs")
        raise SettingsError(
            f"{where}: {settings.reserved_cpus!r} is no CPU list such as 0-1,16: {error}"
        ) from None


def _count(settings: Settings) -> int | None:
    if not settings.reserved or settings.reserved_cpus:
        return None
    where = _where(settings, "--reserved", "kubeReserved.cpu and systemReserved.cpu")
    milli = _milli(where, settings.reserved)
    if milli <= 0:
        raise SettingsError(
            f"{where}: {settings.reserved}: the static policy requires systemreserved.cpu + kubereserved.cpu "
            "to be greater than zero"
        )
    return -(-milli // 1000)


def _milli(where: str, text: str) -> int:
    try:
        return quantity.milli(text)
    except quantity.QuantityError as error:
        raise SettingsError(f"{where}: {text!r} is no amount of CPU such as 2 or 1500m: {error}") from None


def _where(settings: Settings, option: str, name: str) -> str:
    return f"{settings.source}: {name}" if settings.source else option


def _version(text: str) -> Version:
    minor = release(text) if text else 36
    return cast("Version", f"1.{max(minor, 36)}")


def from_file(path: Path, said: Settings) -> Settings:
    """A kubelet's configuration file (or what /configz answers), under what was `said` on the command line.

    Raises SettingsError naming file and field.
    """
    fields = _Fields(str(path), tree(path))
    return replace(
        said,
        policy=said.policy or fields.text("cpuManagerPolicy") or "none",
        reserved_cpus=said.reserved_cpus or ("" if said.reserved else fields.text("reservedSystemCPUs")),
        reserved=said.reserved or fields.reservation(),
        options={**fields.texts("cpuManagerPolicyOptions"), **said.options},
        topology_policy=said.topology_policy or fields.text("topologyManagerPolicy"),
        topology_scope=said.topology_scope or fields.text("topologyManagerScope"),
        topology_options={**fields.texts("topologyManagerPolicyOptions"), **said.topology_options},
        source=str(path),
    )


def tree(path: Path) -> Mapping[str, Any]:
    """The fields of a kubelet's configuration file. Raises SettingsError."""
    import yaml

    try:
        found = yaml.safe_load(files.read_stream(path))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        why = " ".join(str(error).split())
        raise SettingsError(f"{path}: is no YAML or JSON: {why}") from None
    inner = found.get("kubeletconfig", found) if isinstance(found, dict) else found
    if not isinstance(inner, dict):
        raise SettingsError(f"{path}: is {type(inner).__name__}, not a KubeletConfiguration object")
    kind = inner.get("kind", "KubeletConfiguration")
    if kind != "KubeletConfiguration":
        raise SettingsError(f"{path}: kind: {kind!r} is not KubeletConfiguration")
    return inner


@dataclass(frozen=True, slots=True)
class _Fields:
    path: str
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.values.get(name)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise SettingsError(f"{self.path}: {name}: is {type(value).__name__}, not a string")
        return str(value)

    def texts(self, name: str) -> dict[str, str]:
        value = self.values.get(name) or {}
        if not isinstance(value, dict):
            raise SettingsError(f"{self.path}: {name}: is {type(value).__name__}, not an object")
        inner = _Fields(self.path, {f"{name}.{key}": member for key, member in value.items()})
        return {str(key): _go_bool(member) or inner.text(f"{name}.{key}") for key, member in value.items()}

    def reservation(self) -> str:
        """The sum of both reservations; "" where there is none."""
        milli = 0
        for name in ("kubeReserved", "systemReserved"):
            if text := self.texts(name).get("cpu", ""):
                milli += _milli(f"{self.path}: {name}.cpu", text)
        return f"{milli}m" if milli else ""


def _go_bool(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else ""
