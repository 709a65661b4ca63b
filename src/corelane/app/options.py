"""What `corelane up` can be told, and whether that makes sense: checked before anything is touched."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass
from pathlib import Path

from corelane.apiserver.validation import formats
from corelane.cpuset import CPUSet, CPUSetError
from corelane.runtime.enforce import Mode

__all__ = ["OptionError", "Options", "node_name", "reserved", "simulated_name"]


class OptionError(ValueError):
    """An option's value cannot be used; the message names option and value, and says what would do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `corelane up` can be told. `port` None takes the last one used here, or a free one."""

    data_dir: Path
    port: int | None = None
    node_name: str | None = None
    reserved_cpus: str | None = None
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
