"""Options of several limits commands: what to measure, from which source, under which policy."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from corelane.cli._errors import Fault

FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_DIRECTORY: Final = click.Path(exists=True, file_okay=False, path_type=Path)
_Made = TypeVar("_Made", bound=Callable[..., Any])


def _together(*options: Callable[[_Made], _Made]) -> Callable[[_Made], _Made]:
    """Several options as one decorator, listed in this order."""
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


selection = _together(
    click.option("-n", "--namespace", default="", help="Only this namespace."),
    click.option("--pod", metavar="GLOB", default="", help="Only pods with matching names, such as web-*."),
)
source = _together(
    click.option(
        "--root",
        type=_DIRECTORY,
        default="/",
        show_default=True,
        help="The node's root directory, with sys/fs/cgroup, proc and var/log/containers.",
    ),
    click.option(
        "--data-dir",
        type=click.Path(file_okay=False, path_type=Path),
        help="Where `corelane up` keeps its state.  [default: /var/lib/corelane, or the user's own]",
    ),
    click.option(
        "--cgroup",
        "cgroups",
        type=_DIRECTORY,
        multiple=True,
        help="Measure only this cgroup, by its directory; may be repeated.",
    ),
    click.option(
        "--prometheus", metavar="URL", help="Read a cluster's measurements from Prometheus instead."
    ),
    click.option(
        "--window", metavar="5m", default="5m", show_default=True, help="Range of samples, with --prometheus."
    ),
    click.option("--bearer-token-file", type=FILE, help="File with the bearer token for Prometheus."),
)
policy = _together(
    click.option("--policy", type=FILE, help="YAML file with the policy; options override the file."),
    click.option(
        "--cpu-limit",
        type=click.Choice(["never", "allowed", "equal-to-request"]),
        help="Whether services may have CPU limits.  [default: never]",
    ),
    click.option(
        "--cpu-request",
        type=click.Choice(["required", "optional"]),
        help="CPU requests.  [default: required]",
    ),
    click.option(
        "--memory-limit",
        type=click.Choice(["equal-to-request", "required", "optional"]),
        help="Memory limits.  [default: equal-to-request]",
    ),
)
_NAMES: Final = {
    "cpu_limit": "cpuLimit",
    "cpu_request": "cpuRequest",
    "memory_limit": "memoryLimit",
    "node_cpus": "nodeCPUs",
    "cfs_period": "cfsPeriod",
    "fail_on": "failOn",
}


def named(flags: dict[str, Any]) -> dict[str, Any]:
    """The options by their names in a policy file."""
    return {_NAMES[key]: value for key, value in flags.items()}


def window(text: str) -> str:
    """A duration as Prometheus writes it. Raises Fault."""
    number, unit = text[:-1], text[-1:]
    if unit not in "smhd" or not number.isdecimal() or int(number[:9]) == 0:
        raise Fault(f"--window {text!r}: is not a duration such as 90s, 5m or 1h")
    return text
