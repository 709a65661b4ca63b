"""`corelane allocate`: read the node and the pods, decide, and print the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from corelane import node
from corelane.app.allocate import node_state
from corelane.app.allocate.node_state import NodeQuery
from corelane.app.settings_file import SettingsError
from corelane.node.config import NodeConfig
from corelane.node.explain import what_if
from corelane.node.explain.pod_explanation import PodExplanation
from corelane.node.ledger import NodeState
from corelane.view import allocate as view
from corelane.view import tables
from corelane.workload import PlacementSpec
from corelane.workload.request import PodRequest, QOSClass

_POD_LEVEL: Final = (
    "spec.resources of the pod is ignored: without feature gate PodLevelResourceManagers the kubelet "
    "runs such a pod in the shared pool"
)


def main(requests: Sequence[PodRequest], where: NodeQuery, output: str, say: Callable[[str], None]) -> int:
    """Print the answers as table, json or svg, pods in their order; return 0 if all are admitted, else 1.

    Raises SettingsError, StateFileError, NodeConfigError and MachineError for bad input.
    """
    state, notes = node_state.read(where)
    answers = list(_explanations(state, requests, notes))
    if output == "json":
        plain = [view.plain(one) for one in answers]
        say(json.dumps(plain[0] if len(plain) == 1 else {"pods": plain}, indent=2))
    elif output == "svg":
        say(view.draw(answers[-1]).rstrip("\n"))
    else:
        for one in answers:
            view.show(one, tables.console(), picture=one is answers[-1])
    return 0 if all(one.decision.admitted for one in answers) else 1


def compare(requests: Sequence[PodRequest], where: NodeQuery, output: str, say: Callable[[str], None]) -> int:
    """Print the answers of all allocators as table or json. Raises as `main` does."""
    state, notes = node_state.read(where)
    states = _allocator_states(state, node_state.kubelet_config(where, state.machine))
    answers = list(what_if.compare(states, tuple(requests)))
    if output == "json":
        say(json.dumps({"pods": view.plain_comparison(answers), "notes": list(notes)}, indent=2))
    else:
        view.show_comparison(answers, tables.console())
        for note in notes:
            say(f"note: {note}")
    return 0


def _allocator_states(pooled: NodeState, kubelet: NodeConfig) -> dict[str, NodeState]:
    """Return the node under each allocator: policy `static` with this configuration for the kubelet's."""
    options = pooled.config.pools
    configs = {
        "kubelet": kubelet,
        "koordinator": replace(pooled.config, pools=replace(options, allocator="koordinator")),
        "optimal": replace(pooled.config, pools=replace(options, allocator="optimal")),
    }
    return {name: node.rebase(pooled, pooled.machine, config)[0] for name, config in configs.items()}


def _explanations(
    state: NodeState, requests: Sequence[PodRequest], notes: tuple[str, ...]
) -> Iterator[PodExplanation]:
    for request in requests:
        _check_memory(state, request)
        state, explanation = what_if.explain(state, request, (*_notes(state, request), *notes))
        yield explanation


def _notes(state: NodeState, request: PodRequest) -> Iterator[str]:
    if request.level is not None and not state.config.pod_level:
        yield _POD_LEVEL
    if state.config.policy != "pools" and request.placement_spec != PlacementSpec():
        yield f"{request.key}: CPU placement labels and annotations are ignored: they need --policy pools"
    requested = {name for one in request.containers for name, count in one.devices.items() if count}
    if missing := sorted(requested - state.config.devices.keys()):
        yield (
            f"{request.key}: the node has no device {', '.join(missing)}, so no scheduler would choose it; "
            "describe the node's devices with --node-device"
        )


def _check_memory(state: NodeState, request: PodRequest) -> None:
    """Raises SettingsError for a Guaranteed pod without a memory request where memory is allocated too."""
    if state.memory and request.qos is QOSClass.GUARANTEED and not request.level:
        for container in request.containers:
            if not container.memory_request:
                raise SettingsError(
                    f"container {container.name}: no memory request: the memory manager allocates memory to "
                    "Guaranteed pods; give --memory, such as 4Gi"
                )
