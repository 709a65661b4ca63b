"""Options of several limits commands: what to measure, from which source, under which policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from corelane.cli._errors import Fault
from corelane.cli._options import DIRECTORY, choice, file, gathered, text, together

if TYPE_CHECKING:
    from corelane.app.limits.prometheus import PrometheusServer
    from corelane.app.limits.sites import CgroupSource, Selection

_DIRECTORY: Final = click.Path(exists=True, file_okay=False, path_type=Path)


_WINDOW: Final = "5m"


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is measured: cgroups of a node, or containers of a cluster with `prometheus`."""

    root: Path
    data_dir: Path | None
    cgroups: tuple[Path, ...]
    prometheus: str | None
    window: str | None
    bearer_token_file: Path | None

    def groups(self, pods: Path | None = None) -> CgroupSource:
        """Return where to find this node's cgroups; `pods` is a file with names. Raises Fault."""
        if self.window is not None or self.bearer_token_file:
            given = "--bearer-token-file" if self.window is None else "--window"
            raise Fault(f"{given} is for --prometheus, which is not given")
        from corelane.app.limits.sites import CgroupSource

        return CgroupSource(self.root, pods, self.data_dir, self.cgroups)

    def server(self) -> tuple[PrometheusServer, str]:
        """Return the server and the range of samples. Raises Fault, OSError, PrometheusError."""
        from corelane.app.limits import prometheus

        token = prometheus.bearer(self.bearer_token_file)
        return prometheus.PrometheusServer(self.prometheus or "", token), window(self.window or _WINDOW)


def _selection(namespace: str, pod: str) -> Selection:
    from corelane.app.limits.sites import Selection

    return Selection(namespace, pod)


selection = gathered(
    "selected",
    _selection,
    click.option("-n", "--namespace", default="", help="Only this namespace."),
    click.option("--pod", metavar="GLOB", default="", help="Only pods with matching names, such as web-*."),
)
source = gathered(
    "source",
    SourceOptions,
    click.option(
        "--root",
        type=_DIRECTORY,
        default="/",
        show_default=True,
        help="The node's root directory, with sys/fs/cgroup, proc and var/log/containers.",
    ),
    click.option(
        "--data-dir",
        type=DIRECTORY,
        help="Where `corelane up` keeps its state.  [default: /var/lib/corelane, or the user's own]",
    ),
    click.option(
        "--cgroup",
        "cgroups",
        type=_DIRECTORY,
        multiple=True,
        help="Measure only this cgroup, by its directory; may be repeated.",
    ),
    text("--prometheus", "URL", "Read a cluster's measurements from Prometheus instead."),
    click.option(
        "--window", metavar=_WINDOW, show_default=_WINDOW, help="Range of samples, with --prometheus."
    ),
    file("--bearer-token-file", "File with the bearer token for Prometheus."),
)
policy = together(
    file("--policy", "YAML file with the policy; options override the file."),
    choice(
        "--cpu-limit",
        "never allowed equal-to-request",
        "Whether services may have CPU limits.  [default: never]",
    ),
    choice("--cpu-request", "required optional", "CPU requests.  [default: required]"),
    choice(
        "--memory-limit",
        "equal-to-request required optional",
        "Memory limits.  [default: equal-to-request]",
    ),
)
_NAMES: Final = {
    "cpu_limit": "cpuLimit",
    "cpu_request": "cpuRequest",
    "memory_limit": "memoryLimit",
    "node_cpus": "nodeCPUs",
    "exclusive_cpus": "exclusiveCPUs",
    "cfs_period": "cfsPeriod",
    "fail_on": "failOn",
}


def named(flags: dict[str, Any]) -> dict[str, Any]:
    """The options by their names in a policy file."""
    return {_NAMES[key]: value for key, value in flags.items()}


def window(duration: str) -> str:
    """A duration as Prometheus writes it. Raises Fault."""
    number, unit = duration[:-1], duration[-1:]
    if unit not in "smhd" or not number.isdecimal() or int(number[:9]) == 0:
        raise Fault(f"--window {duration!r}: is not a duration such as 90s, 5m or 1h")
    return duration
