"""What `corelane allocate` answers: the CPUs that a pod would get on a machine in some state, and why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from corelane import node
from corelane.app.allocate import comparison, pool_answers
from corelane.app.allocate.explained import Explained
from corelane.app.allocate.requests import AskError, ask_for, asks_from
from corelane.app.allocate.situation import Where, kubelets_config, situation
from corelane.cpuset import CPUSet
from corelane.node import NodeState
from corelane.view import allocate as view
from corelane.view import objective as objectives
from corelane.view import tables
from corelane.view.allocate import Allocation, ContainerLine, Memory
from corelane.view.owners import Owner
from corelane.workload import PlacementSpec, PodRequest, QOSClass

__all__ = ["AskError", "Where", "allocation", "ask_for", "asks_from", "main", "situation"]

_POD_LEVEL: Final = (
    "the pod has resources as a whole: a kubelet without PodLevelResourceManagers lets it share the pool"
)


def main(
    requests: Sequence[PodRequest],
    where: Where,
    form: str,
    say: Callable[[str], None],
    *,
    compare: bool = False,
) -> int:
    """Print the answers as tables, json or svg, pods in their order; 0 when all are admitted, else 1.

    To compare allocators is always 0.

    Raises AskError, SettingsError, StateFileError, NodeConfigError and MachineError for bad input.
    """
    state, notes = situation(where)
    if compare:
        return _compare(state, requests, where, notes, form, say)
    found = list(_allocations(state, requests, notes))
    if form == "json":
        plain = [view.plain(one) for one in found]
        say(json.dumps(plain[0] if len(plain) == 1 else {"pods": plain}, indent=2))
    elif form == "svg":
        say(view.draw(found[-1]).rstrip("\n"))
    else:
        for one in found:
            view.show(one, tables.console(), picture=one is found[-1])
    return 0 if all(one.admitted for one in found) else 1


def _allocations(
    state: NodeState, requests: Sequence[PodRequest], notes: tuple[str, ...]
) -> Iterator[Allocation]:
    for request in requests:
        _check(state, request)
        state, found = _allocated(state, request, (*_notes(state, request), *notes))
        yield found


def _notes(state: NodeState, request: PodRequest) -> Iterator[str]:
    if request.level is not None and not state.config.pod_level:
        yield _POD_LEVEL
    if state.config.policy != "pools" and request.placement_spec != PlacementSpec():
        yield f"{request.key}: labels and annotations about its CPUs count under --policy pools only"
    wanted = {name for one in request.containers for name, count in one.devices.items() if count}
    if missing := sorted(wanted - state.config.devices.keys()):
        yield (
            f"{request.key}: {', '.join(missing)}: no such devices are known here, so a scheduler would not "
            "choose this node; say with --node-device which it has"
        )


def _compare(
    state: NodeState,
    requests: Sequence[PodRequest],
    where: Where,
    notes: tuple[str, ...],
    form: str,
    say: Callable[[str], None],
) -> int:
    states = comparison.variants(state, kubelets_config(where, state.machine))
    found = list(comparison.compared(states, tuple(requests)))
    if form == "json":
        say(json.dumps({"pods": objectives.plain_compared(found), "notes": list(notes)}, indent=2))
    else:
        objectives.show_compared(found, tables.console())
        for note in notes:
            say(f"note: {note}")
    return 0


def _check(state: NodeState, request: PodRequest) -> None:
    """Raises AskError for a Guaranteed pod that asks for no memory where the kubelet would hand it out."""
    if state.memory and request.qos is QOSClass.GUARANTEED and not request.level:
        for container in request.containers:
            if not container.memory_request:
                raise AskError(
                    f"container {container.name}: the memory manager hands out memory to Guaranteed pods: "
                    "say how much with --memory, such as 4Gi"
                )


def allocation(state: NodeState, request: PodRequest, notes: tuple[str, ...] = ()) -> Allocation:
    """What `node.admit` decides on this ask, with each step of the choice."""
    return _allocated(state, request, notes)[1]


def _allocated(state: NodeState, request: PodRequest, notes: tuple[str, ...]) -> tuple[NodeState, Allocation]:
    after, decision = node.admit(state, request)
    merge = weighed = None
    if state.config.policy == "pools":
        lines, weighed = pool_answers.answer(state, after, request, decision)
    else:
        told = Explained(state, request, decision)
        merge = told.of_pod
        lines = list(told.lines())
    lines = [_with_belongings(line, after, request) for line in lines]
    found = Allocation(
        machine=state.machine,
        pod=request.key,
        qos=_class(request),
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
        objective=weighed,
    )
    return after, found


def _class(request: PodRequest) -> str:
    """Koordinator's class, where the pod is labelled with one, beside Kubernetes'."""
    return f"{request.qos} {request.placement_spec.qos}" if request.placement_spec.qos else request.qos.value


def _without_cpus(line: ContainerLine) -> ContainerLine:
    """A refused pod gets nothing, whatever was found for its first containers."""
    return replace(line, cpus=CPUSet(), quality=None, runner_up=CPUSet(), runner_up_quality=None)


def _with_belongings(line: ContainerLine, after: NodeState, request: PodRequest) -> ContainerLine:
    """The line with the memory and the devices that the container has in the end."""
    entry = after.entries.get((request.uid, line.name))
    if entry is None:
        return line
    memory = tuple(Memory(block.resource, block.size, str(block.nodes)) for block in entry.memory)
    return replace(line, memory=memory, devices={name: list(ids) for name, ids in entry.devices.items()})
