"""What `corelane up` can be told, and whether that makes sense: checked before anything is touched."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from pathlib import Path

from corelane.apiserver import formats
from corelane.app import nodefile
from corelane.cpuset import CPUSet, CPUSetError
from corelane.machine import Machine
from corelane.node import NodeConfig, NodeConfigError
from corelane.node.config import Policy, check
from corelane.node.ledger import usable_topology
from corelane.node.pools.options import AllocatorName
from corelane.runtime.enforce import Mode

__all__ = [
    "OptionError",
    "Options",
    "check_settings",
    "elsewhere",
    "kubelet_state",
    "node_name",
    "reserved",
    "settings",
    "simulated_name",
]


class OptionError(ValueError):
    """An option's value cannot be used; the message names option and value, and says what would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `corelane up` can be told. `port` None takes the last one used here, or a free one."""

    data_dir: Path
    port: int | None = None
    node_name: str | None = None
    reserved_cpus: str | None = None
    node_config: Path | None = None
    policy: Policy | None = None
    """None: what the node's file says, else `pools`; so for the allocator, `optimal`."""
    allocator: AllocatorName | None = None
    simulated: int = 0
    machine: str = ""
    cgroups: Mode = "auto"


def node_name(options: Options) -> str:
    """The name of this machine's node, by default the host's in lower case, as the kubelet does it.

    It also names a directory and a label. Raises OptionError for what Kubernetes would not take.
    """
    given = options.node_name
    name = (platform.node().lower() or "localhost") if given is None else given
    if formats.dns_subdomain(name) or formats.label_value(name):
        whence = "the host's name" if given is None else "--node-name"
        raise OptionError(
            f"{whence} {name!r} cannot name a node; give --node-name one of up to 63 lower case letters, "
            "digits, '-' and '.', such as 'node-1.lab'"
        )
    if _is_simulated(name, options.simulated):
        raise OptionError(f"--node-name {name} is what a simulated node is called; give another name")
    return name


def simulated_name(number: int) -> str:
    """The name of a simulated node, counted from 1."""
    return f"sim-{number}"


def _is_simulated(name: str, count: int) -> bool:
    number = re.fullmatch(r"sim-([1-9]\d{0,9})", name)
    return number is not None and int(number[1]) <= count


def reserved(options: Options) -> CPUSet | None:
    """The operator's choice of reserved CPUs, None where there is none. Raises OptionError."""
    text = options.reserved_cpus
    try:
        return CPUSet.parse(text) if text else None
    except CPUSetError as error:
        raise OptionError(f"--reserved-cpus {text!r} is not a CPU list such as 0-1,8: {error}") from error


def settings(options: Options) -> NodeConfig:
    """The settings of this machine's node: from its file, changed by what the command line names.

    Raises OptionError, NodeFileError.
    """
    config = nodefile.load(options.node_config) if options.node_config else NodeConfig(policy="pools")
    if named := reserved(options):
        config = replace(config, reserved=named, reserved_count=None)
    if options.allocator:
        config = replace(config, pools=replace(config.pools, allocator=options.allocator))
    config = replace(config, policy=options.policy or config.policy)
    if options.allocator and config.policy != "pools":
        raise OptionError(
            f"--allocator {options.allocator} counts under policy pools only, but the policy is "
            f"{config.policy}: leave it out, or say --policy pools"
        )
    return config


def check_settings(options: Options, config: NodeConfig, machine: Machine, within: str = "") -> None:
    """Raises OptionError for settings that this machine cannot honour, naming the file that they are in."""
    try:
        check(config, usable_topology(machine), machine)
    except NodeConfigError as error:
        if options.reserved_cpus and not within and error.field == "reserved":
            detail = error.detail.removeprefix(f"{config.reserved}: ")
            raise OptionError(f"--reserved-cpus {options.reserved_cpus}: {detail}") from error
        where = f"{options.node_config}: " if options.node_config else ""
        raise OptionError(f"{where}{within}{nodefile.explain(error)}") from error


def elsewhere(config: NodeConfig, options: Options | None = None) -> NodeConfig:
    """The same settings for a simulated node, without what is this machine's own: lists of CPUs, and devices.

    What the node's file says of simulated nodes takes its place. Raises NodeFileError.
    """
    file = nodefile.read(options.node_config) if options and options.node_config else None
    theirs = file.simulated if file else NodeConfig()
    pools = replace(config.pools, withheld=CPUSet(), system=CPUSet())
    return replace(
        config, reserved=theirs.reserved, memory=theirs.memory, devices=theirs.devices, pools=pools
    )


def kubelet_state(options: Options) -> Path | None:
    """The state file of a kubelet whose pods keep their CPUs, as the node's file names it. NodeFileError."""
    return nodefile.read(options.node_config).kubelet_state if options.node_config else None
