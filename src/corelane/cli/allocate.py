"""`corelane allocate`: which CPUs a request would get, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from corelane.cli import _kubelet, _pools
from corelane.cli._errors import Command, Fault

_EXISTING = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=Command)
@click.option("--cpus", metavar="N", help="CPUs that one container of a Guaranteed pod asks for.")
@click.option("--memory", metavar="SIZE", help="Memory that it asks for, such as 8Gi.")
@click.option(
    "--hugepages",
    metavar="SIZE=AMOUNT",
    multiple=True,
    help="Huge pages, such as 2Mi=512Mi; may be repeated.",
)
@click.option(
    "--device",
    "devices",
    metavar="NAME=COUNT",
    multiple=True,
    help="Devices that it asks for, such as nvidia.com/gpu=1; may be repeated.",
)
@click.option(
    "-f", "--filename", type=_EXISTING, help="A manifest of pods, in their order, instead of --cpus."
)
@_pools.pod
@_kubelet.machine
@click.option(
    "--state",
    type=_EXISTING,
    help="What is handed out: a kubelet's cpu_manager_state, or corelane's ledger.json.  [default: nothing]",
)
@_pools.node
@_kubelet.settings_of_kubelet
@_kubelet.resources
@click.option(
    "--topology-scope",
    type=click.Choice(["container", "pod"]),
    help="Topology manager scope.  [default: container]",
)
@click.option(
    "--topology-option",
    "topology_options",
    metavar="NAME=VALUE",
    multiple=True,
    help="A topology manager option, such as prefer-closest-numa-nodes=true; may be repeated.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "svg"]), default="table", show_default=True
)
def allocate(
    cpus: str | None,
    memory: str | None,
    hugepages: tuple[str, ...],
    devices: tuple[str, ...],
    filename: Path | None,
    machine: str | None,
    state: Path | None,
    output: str,
    **kubelet: Any,
) -> None:
    """Say which CPUs a request would get on a machine in some state, and why: each step, and the runner-up.

    With memory, huge pages or devices also which of them, on which NUMA nodes, and how all are aligned; under
    policy pools every term of the objective, and what would help where nothing fits.

    Nothing is changed. Answers as corelane's node policies do; with --kubernetes-version exactly as that
    kubelet does, even where that leaves the shared pool empty. Exits with 1 if a pod would be refused.

    \b
    corelane allocate --cpus 4
    corelane allocate --cpus 16 --machine 'socket:2 core:12 smt:2' --option full-pcpus-only=true
    corelane allocate -f pod.yaml --state /var/lib/kubelet/cpu_manager_state --reserved-cpus 0,32
    corelane allocate --cpus 8 -o svg > cpus.svg
    corelane allocate --cpus 6 --policy pools --qos LSE --exclusive core --numa-policy SingleNUMANode
    corelane allocate -f pods.yaml --compare --machine 'socket:2 numa:2 core:16 smt:2'
    corelane allocate --cpus 4 --memory 8Gi --device nvidia.com/gpu=1 --machine 'socket:2 core:8 smt:2' \\
      --memory-policy Static --reserved-memory 0:memory=1Gi --node-device nvidia.com/gpu=gpu0@0,gpu1@1
    """  # noqa: D301 - click wants the character itself
    if (cpus is None) == (filename is None):
        raise Fault("give either --cpus N or -f POD.yaml")
    if filename and (memory or hugepages or devices):
        raise Fault("--memory, --hugepages and --device go with --cpus: a manifest says its own")
    policy = _pools.policy(kubelet, filename=filename)
    if output == "svg" and kubelet["compare"]:
        raise Fault("--compare draws nothing: use -o table or -o json")
    from corelane.app.allocate import command as app

    compare, placement_spec, flags = (
        kubelet.pop("compare"),
        _pools.placement_spec(kubelet),
        _pools.flags(kubelet),
    )
    more = _kubelet.node_settings(kubelet)
    settings = _kubelet.settings(**kubelet | {"policy": policy})
    where = app.Where(machine, state, settings, more, flags)
    if filename:
        asks = app.asks_from(filename)
    else:
        asks = (
            replace(app.ask_for(cpus or "", memory or "", hugepages, devices), placement_spec=placement_spec),
        )
    raise SystemExit(app.main(asks, where, output, click.echo, compare=compare))
