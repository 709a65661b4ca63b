"""`corelane state`: show, verify, convert and repair the kubelet's state files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from corelane.cli import _kubelet, _options
from corelane.cli._errors import Fault, Group

_FILE = click.argument("file", type=_options.PATH)
_OUTPUT = _options.output("table json")
_VERSION = click.Choice(["v2", "v3", "v4", "2", "3", "4"])


@click.group(cls=Group)
def state() -> None:
    """Show, verify, convert and repair the kubelet's cpu_manager_state; show and verify memory_manager_state.

    After a change of policy, reservation or CPUs the kubelet does not start until the file fits again, or
    until the node is drained and the file deleted. `repair` makes the file fit while pods keep running.
    """


@state.command()
@_FILE
@_OUTPUT
def show(file: Path, output: str) -> None:
    """Show policy, checksum, and each container's CPUs or memory."""
    from corelane.app.state import command

    raise SystemExit(command.show(file, as_json=output == "json", say=click.echo))


@state.command()
@_FILE
@_options.machine
@_kubelet.kubelet
@_options.many(
    "--reserved-memory",
    "NODE:RESOURCE=SIZE",
    "For memory_manager_state, as the kubelet's flag, such as 0:memory=1Gi",
)
@_OUTPUT
def verify(
    file: Path, machine: str | None, output: str, reserved_memory: tuple[str, ...], **kubelet: Any
) -> None:
    """Check whether the kubelet would start with the file.

    Shows the result of each rule of its start, and a remedy where a rule fails. Exits with 0 if it would
    start, with 1 if not. For memory_manager_state, --policy is the memory manager's.
    """
    from corelane.app.state import command, files

    as_json = output == "json"
    if files.is_memory(file):
        memory = {"policy": None, "memory_policy": kubelet["policy"], "reserved_memory": reserved_memory}
        settings = _kubelet.settings(kubelet | memory)
        raise SystemExit(command.verify_memory(file, machine, settings, as_json=as_json, say=click.echo))
    settings = _kubelet.settings(kubelet)
    raise SystemExit(command.verify(file, machine, settings, as_json=as_json, say=click.echo))


@state.command()
@_FILE
@click.option("--to", "version", type=_VERSION, required=True, help="Version to write.")
def convert(file: Path, version: str) -> None:
    """Write the file in another version.

    The old file stays as FILE.bak-TIME. v2 is read by kubelets from 1.18, v3 by 1.36 with pod-level
    resource managers; v4 is written by 1.37.
    """
    from corelane.app.state import command

    raise SystemExit(command.convert(file, _version(version), say=click.echo))


def _version(text: str) -> int:
    return int(text.removeprefix("v"))


@state.command()
@_FILE
@_options.machine
@_kubelet.kubelet
@click.option(
    "--pods",
    type=_options.PATH,
    help="The node's pods: output of `kubectl get pods -A -o json`, or of the kubelet's /pods.",
)
@click.option(
    "--cri",
    metavar="[SOCKET]",
    is_flag=False,
    flag_value="unix:///run/containerd/containerd.sock",
    help="Get names from the container runtime's CRI socket; without SOCKET from containerd's.",
)
@click.option(
    "--root",
    type=_options.PATH,
    default="/",
    show_default=True,
    help="The node's root directory, with sys/fs/cgroup and var/log/containers.",
)
@click.option("--to", "version", type=_VERSION, help="Version to write.  [default: the file's, or v2]")
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("-y", "--yes", is_flag=True, help="Write without confirmation.")
@_OUTPUT
def repair(
    file: Path,
    machine: str | None,
    pods: Path | None,
    cri: str | None,
    root: Path,
    version: str | None,
    output: str,
    *,
    dry_run: bool,
    yes: bool,
    **kubelet: Any,
) -> None:
    """Rebuild the file from the running containers.

    With the new file the kubelet starts, and running pods keep their CPUs. Reads the cpusets of the pods'
    cgroups, names containers by the list of pods, by the container runtime (--cri) or by the links in
    /var/log/containers, shows the changes, and asks for confirmation. The old file stays as
    FILE.bak-TIME. CPUs of containers without a known name stay allocated. Stop the kubelet first.
    """
    from corelane.app.state import command as app

    as_json = output == "json"
    if as_json and not (yes or dry_run):
        raise Fault("-o json cannot ask for confirmation: add --yes or --dry-run")
    settings, sources = _kubelet.settings(kubelet), app.RepairSources(root, pods, cri or "")
    plan = app.plan(file, machine, settings, sources, _version(version) if version else None)
    raise SystemExit(
        app.repair(
            plan,
            dry_run=dry_run,
            confirm=lambda: yes or click.confirm(f"Write {file}?"),
            as_json=as_json,
            say=click.echo,
        )
    )
