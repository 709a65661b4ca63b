"""`corelane state`: the kubelet's state files, shown, verified, converted and repaired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from corelane.cli import _kubelet
from corelane.cli._errors import Fault, Group

# Whether it can be read is for the application to say, in one line.
_FILE = click.argument("file", type=click.Path(readable=False, path_type=Path))
_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
_VERSION = click.Choice(["v2", "v3", "v4", "2", "3", "4"])


@click.group(cls=Group)
def state() -> None:
    """Read, check and mend the kubelet's cpu_manager_state; read and check its memory_manager_state.

    A kubelet whose policy, reservation or CPUs have changed does not start until this file fits again, or is
    deleted with the node drained. `repair` makes it fit while pods run on.
    """


@state.command()
@_FILE
@_OUTPUT
def show(file: Path, output: str) -> None:
    """Show what the file says: policy, who has which CPUs (or memory), checksum."""
    from corelane.app.state import command

    raise SystemExit(command.show(file, as_json=output == "json", say=click.echo))


@state.command()
@_FILE
@_kubelet.machine
@_kubelet.kubelet
@click.option(
    "--reserved-memory",
    metavar="NODE:RESOURCE=SIZE",
    multiple=True,
    help="For a memory_manager_state, as the kubelet's flag: 0:memory=1Gi; may be repeated.",
)
@_OUTPUT
def verify(
    file: Path, machine: str | None, output: str, reserved_memory: tuple[str, ...], **kubelet: Any
) -> None:
    """Say whether the kubelet would start with the file, or which of its rules fails, and what to do.

    Exits with 0 if it would start, with 1 if not. For a memory_manager_state, --policy is that manager's.
    """
    from corelane.app.state import command, files

    as_json = output == "json"
    if files.is_memory(file):
        given = command.MemorySettings(
            policy=kubelet["policy"] or "",
            reserved=reserved_memory,
            config=kubelet["kubelet_config"],
            version=kubelet["kubernetes_version"] or "",
        )
        raise SystemExit(command.verify_memory(file, machine, given, as_json=as_json, say=click.echo))
    settings = _kubelet.settings(**kubelet)
    raise SystemExit(command.verify(file, machine, settings, as_json=as_json, say=click.echo))


@state.command()
@_FILE
@click.option("--to", "version", type=_VERSION, required=True, help="The version to write.")
def convert(file: Path, version: str) -> None:
    """Write the file in another version, keeping the old one as FILE.bak-TIME.

    v2 is read by kubelets from 1.18 on, v3 by 1.36 with pod-level resource managers, v4 is what 1.37 writes.
    """
    from corelane.app.state import command as app

    raise SystemExit(app.convert(file, int(version.removeprefix("v")), say=click.echo))


@state.command()
@_FILE
@_kubelet.machine
@_kubelet.kubelet
@click.option(
    "--pods",
    type=click.Path(readable=False, path_type=Path),
    help="The node's pods: output of `kubectl get pods -A -o json`, or of the kubelet's /pods.",
)
@click.option(
    "--cri",
    metavar="[SOCKET]",
    is_flag=False,
    flag_value="unix:///run/containerd/containerd.sock",
    help="Ask the container runtime for names, through its CRI socket; without one containerd's.",
)
@click.option(
    "--root",
    type=click.Path(readable=False, path_type=Path),
    default="/",
    show_default=True,
    help="The node's root directory, with sys/fs/cgroup and var/log/containers.",
)
@click.option("--to", "version", type=_VERSION, help="The version to write.  [default: the file's, or v2]")
@click.option("--dry-run", is_flag=True, help="Only show the difference.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
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
    """Rebuild the file from what is running, so that the kubelet starts and no pod loses its CPUs.

    Reads the cpusets of the pods' cgroups, names them by the list of pods, by the container runtime (--cri)
    or by the links in /var/log/containers, shows what changes, and asks. The old file stays as FILE.bak-TIME.
    CPUs whose owner has no name stay blocked. Stop the kubelet before.
    """
    from corelane.app.state import repair as app

    as_json = output == "json"
    if as_json and not (yes or dry_run):
        raise Fault("-o json asks no questions: give --yes or --dry-run as well")
    settings = _kubelet.settings(**kubelet)
    target = int(version.removeprefix("v")) if version else None
    plan = app.plan(file, machine, settings, app.RepairSources(root, pods, cri or ""), target)
    raise SystemExit(
        app.repair(
            plan,
            dry_run=dry_run,
            confirm=lambda: yes or click.confirm(f"Write {file}?"),
            as_json=as_json,
            say=click.echo,
        )
    )
