"""What `corelane allocate` answers: the CPUs that a pod would get on a machine in some state, and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from corelane import node
from corelane.app.allocate_ask import AskError, ask_for, ask_from
from corelane.app.allocate_explained import Explained
from corelane.app.allocate_state import situation
from corelane.app.node_settings import NodeSettings
from corelane.app.state_settings import Settings
from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.view import allocate as view
from corelane.view import tables
from corelane.view.allocate import Allocation, ContainerLine, Memory
from corelane.view.owners import Owner
from corelane.workload import Ask, QOSClass

__all__ = ["AskError", "allocation", "ask_for", "ask_from", "main", "situation"]

_POD_LEVEL: Final = (
    "the pod has resources as a whole: a kubelet without PodLevelResourceManagers lets it share the pool"
)


def main(
    ask: Ask,
    source: str | None,
    path: Path | None,
    settings: Settings,
    form: str,
    say: Callable[[str], None],
    more: NodeSettings | None = None,
) -> int:
    """Print the answer as table, json or svg; 0 when the pod is admitted, 1 when refused.

    Raises AskError, SettingsError, StateFileError, NodeConfigError and MachineError for bad input.
    """
    state, notes = situation(source, path, settings, more)
    if ask.level is not None and not state.config.pod_level:
        notes = (_POD_LEVEL, *notes)
    _check(state, ask)
    found = allocation(state, ask, notes)
    if form == "json":
        say(json.dumps(view.plain(found), indent=2))
    elif form == "svg":
        say(view.draw(found).rstrip("\n"))
    else:
        view.show(found, tables.console())
    return 0 if found.admitted else 1


def _check(state: NodeState, ask: Ask) -> None:
    """Raises AskError for a Guaranteed pod that asks for no memory where the kubelet would hand it out."""
    if state.memory and ask.qos is QOSClass.GUARANTEED and not ask.level:
        for container in ask.containers:
            if not container.memory_request:
                raise AskError(
                    f"container {container.name}: the memory manager hands out memory to Guaranteed pods: "
                    "say how much with --memory, such as 4Gi"
                )


def allocation(state: NodeState, ask: Ask, notes: tuple[str, ...] = ()) -> Allocation:
    """What `node.admit` decides on this ask, with each step of the choice."""
    after, decision = node.admit(state, ask)
    told = Explained(state, ask, decision)
    merge = told.of_pod
    lines = [_with_belongings(line, after, ask) for line in told.lines()]
    return Allocation(
        machine=state.machine,
        pod=ask.key,
        qos=ask.qos.value,
        policy=state.config.policy,
        admitted=decision.admitted,
        reason=decision.reason,
        message=decision.message,
        containers=tuple(lines if decision.admitted else map(_without_cpus, lines)),
        usable=state.usable,
        reserved=state.reserved,
        free=state.free_exclusive,
        shared=decision.shared,
        owners={
            cpu: Owner(f"{entry.pod}/{entry.container}", entry.cls) for cpu, entry in state.owners().items()
        },
        notes=notes,
        merge=merge,
    )


def _without_cpus(line: ContainerLine) -> ContainerLine:
    """A refused pod gets nothing, whatever was found for its first containers."""
    return replace(line, cpus=CPUSet(), quality=None, runner_up=CPUSet(), runner_up_quality=None)


def _with_belongings(line: ContainerLine, after: NodeState, ask: Ask) -> ContainerLine:
    """The line with the memory and the devices that the container has in the end."""
    entry = after.entries.get((ask.uid, line.name))
    if entry is None:
        return line
    memory = tuple(Memory(block.resource, block.size, str(block.nodes)) for block in entry.memory)
    return replace(line, memory=memory, devices={name: list(ids) for name, ids in entry.devices.items()})
