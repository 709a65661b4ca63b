"""The options of `corelane up`, checked before anything is changed."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from corelane.app import nodefile
from corelane.app.nodefile import host_or_given
from corelane.cpuset import CPUSet
from corelane.embedded.containers.enforce import Mode
from corelane.machine import Machine
from corelane.node import NodeConfigError
from corelane.node.config import AllocatorName, NodeConfig, Policy, check
from corelane.node.ledger import usable_topology
from corelane.settings import SettingsError, cpu_list


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """Options of `corelane up`. With `port` None the last port used here, or a free one."""

    data_dir: Path
    port: int | None = None
    node_name: str | None = None
    reserved_cpus: str | None = None
    node_config: Path | None = None
    policy: Policy | None = None
    """None: the node file's, else `pools`; likewise for the allocator, else `optimal`."""
    allocator: AllocatorName | None = None
    simulated: int = 0
    machine: str = ""
    cgroups: Mode = "auto"
    other_instances: Literal["block", "ignore"] = "ignore"
    """Whether CPUs of containers of other instances on this machine are blocked."""
    restore_backup: Path | None = None
    """Backup that replaces the API server's file before the start."""
    forget_pods: bool = False
    """End running pods that the API server does not have, rather than recreate them."""
    reconcile_seconds: float | None = None
    """None: the node file's, else 10."""


def node_name(options: UpOptions) -> str:
    """Return the name of this machine's node, by default the host's in lower case, as the kubelet does.

    It also names a directory and a label. Raises SettingsError for a name that Kubernetes rejects.
    """
    name = host_or_given(options.node_name)
    number = re.fullmatch(r"sim-([1-9]\d{0,9})", name)
    if number is not None and int(number[1]) <= options.simulated:
        raise SettingsError(f"--node-name {name} is the name of a simulated node; give another name")
    return name


def simulated_name(number: int) -> str:
    """Return the name of a simulated node, counted from 1."""
    return f"sim-{number}"


def reserved(options: UpOptions) -> CPUSet | None:
    """Return --reserved-cpus, None where it is not given. Raises SettingsError."""
    text = options.reserved_cpus
    return cpu_list("--reserved-cpus", text) if text else None


def settings(options: UpOptions) -> NodeConfig:
    """Return the settings of this machine's node: from its file, overridden by options.

    Raises SettingsError.
    """
    config = nodefile.load(options.node_config) if options.node_config else NodeConfig(policy="pools")
    if named := reserved(options):
        config = replace(config, reserved=named, reserved_count=None)
    if options.allocator:
        config = replace(config, pools=replace(config.pools, allocator=options.allocator))
    config = replace(config, policy=options.policy or config.policy)
    if options.allocator and config.policy != "pools":
        raise SettingsError(
            f"--allocator {options.allocator} requires policy pools, but the policy is {config.policy}; "
            "remove the option, or add --policy pools"
        )
    return config


def check_settings(options: UpOptions, config: NodeConfig, machine: Machine, within: str = "") -> None:
    """Raise SettingsError for a setting that this machine cannot satisfy, naming field or option."""
    where = f"{options.node_config}: " if options.node_config else ""
    if all_reserved := _all_reserved(options, config, machine, within):
        raise SettingsError(
            f"{all_reserved} reserves all CPUs of this machine ({machine.usable}), "
            "none is left for exclusive use; leave out at least one"
        )
    try:
        check(config, usable_topology(machine), machine)
    except NodeConfigError as error:
        if options.reserved_cpus and not within and error.field == "reserved":
            raise SettingsError(f"--reserved-cpus {error.detail}") from error
        raise SettingsError(f"{where}{within}{nodefile.explain(error)}") from error


def _all_reserved(options: UpOptions, config: NodeConfig, machine: Machine, within: str) -> str:
    """Return the option or field, with its value, that leaves no CPU for exclusive use; "" if there is none.

    On a machine with one CPU that is reserved by default.
    """
    named = None if within else reserved(options)
    where = f"{options.node_config}: {within}" if options.node_config else within
    if named and machine.usable <= named:
        return f"--reserved-cpus {named}"
    if len(machine.usable) == 1:
        return ""
    if config.reserved and machine.usable <= config.reserved:
        return f"{where}reservedCPUs {config.reserved}"
    if config.reserved_count is not None and config.reserved_count == len(machine.usable):
        return f"{where}reservedCPUCount {config.reserved_count}"
    return ""


def simulated_settings(config: NodeConfig, options: UpOptions | None = None) -> NodeConfig:
    """Return the settings for simulated nodes: without this machine's CPU lists, memory and devices.

    The node's file has separate values for simulated nodes. Raises NodeFileError.
    """
    file = nodefile.read(options.node_config) if options and options.node_config else None
    theirs = file.simulated if file else NodeConfig()
    pools = replace(config.pools, withheld=CPUSet(), system=CPUSet())
    return replace(
        config, reserved=theirs.reserved, memory=theirs.memory, devices=theirs.devices, pools=pools
    )


def kubelet_state(options: UpOptions) -> Path | None:
    """Return the state file of a kubelet whose pods keep their CPUs, from the node's file. NodeFileError."""
    return nodefile.read(options.node_config).kubelet_state if options.node_config else None


def reconcile_seconds(options: UpOptions) -> float:
    """Return the seconds between two comparisons of all containers with the kernel. Raises NodeFileError."""
    if options.reconcile_seconds is not None:
        return options.reconcile_seconds
    file = nodefile.read(options.node_config) if options.node_config else None
    return file.reconcile_seconds if file else nodefile.RECONCILE_SECONDS
