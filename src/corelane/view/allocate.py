"""The CPUs that pods would get, and why: as tables with a map, as JSON, or as a drawing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from corelane.node.explain.json_values import json_value
from corelane.node.explain.pod_explanation import (
    ContainerExplanation,
    HintMerge,
    Locality,
    Objective,
    PodExplanation,
    ProviderHints,
)
from corelane.node.explain.what_if import AllocatorAnswer, Comparison
from corelane.placement.memory_blocks import in_words
from corelane.view import svg, tables
from corelane.view.cpumap import Owner, cpumap

if TYPE_CHECKING:
    from rich.console import Console

# JSON, with stable keys; CPU sets are list strings.


def plain(pod: PodExplanation) -> dict[str, Any]:
    """Return the explanation of a pod for JSON."""
    state, decision = pod.state, pod.decision
    return {
        "machine": state.machine.name,
        "pod": pod.request.key,
        "qosClass": _class(pod),
        "policy": state.config.policy,
        "admitted": decision.admitted,
        "reason": decision.reason,
        "message": decision.message,
        "containers": [_plain_container(container) for container in pod.containers],
        "cpus": str(state.usable),
        "reserved": str(state.reserved),
        "free": str(state.free_exclusive),
        "sharedPool": str(decision.shared),
        "notes": list(pod.notes),
        "merge": json_value(pod.merge, _KEYS),
        "objective": _plain_objective(pod.objective),
    }


def _plain_container(container: ContainerExplanation) -> dict[str, Any]:
    near, next_near = container.locality, container.runner_up_locality
    return {
        "name": container.name,
        "kind": container.kind,
        "wanted": container.requested,
        "exclusive": bool(container.cpus),
        "cpus": str(container.cpus),
        "quality": asdict(near) if near else None,
        "steps": json_value(container.steps),
        "candidates": json_value(container.candidates),
        "runnerUp": str(container.runner_up),
        "runnerUpQuality": asdict(next_near) if next_near else None,
        "memory": json_value(container.memory),
        "devices": json_value(container.devices),
        "merge": json_value(container.merge, _KEYS),
        "pool": container.pool,
    }


def _plain_objective(objective: Objective | None) -> dict[str, Any] | None:
    if objective is None:
        return None
    terms = [
        {**json_value(term, _KEYS), "better": "higher" if term.larger else "lower"}
        for term in objective.terms
    ]
    return {**json_value(objective, _KEYS), "terms": terms}


_KEYS: Final = {"amount": "wanted", "bound": "unprovenBound", "remedies": "changes", "larger": ""}


def plain_comparison(pods: Iterable[Comparison]) -> list[dict[str, Any]]:
    """Return the answers of all allocators for JSON, a member for each pod."""
    return [
        {
            "pod": pod.pod,
            "allocators": [
                {
                    "name": answer.allocator,
                    "admitted": answer.decision.admitted,
                    "message": answer.decision.message,
                    "containers": {name: str(cpus) for name, cpus in answer.decision.assignments.items()},
                    "terms": {term.name: term.value for term in answer.terms},
                }
                for answer in pod.answers
            ],
        }
        for pod in pods
    ]


# Tables.


def show(pod: PodExplanation, to: Console, *, picture: bool = True) -> None:
    """Print the decision on a pod, the steps of each container, and the map of the machine with it."""
    key, decision = pod.request.key, pod.decision
    verdict = "admitted" if decision.admitted else f"rejected: {decision.reason}: {decision.message}\n"
    to.print(f"pod {key} ({_class(pod)}): {verdict}", markup=False)
    if decision.admitted:
        rows = [row for container in pod.containers for row in _rows(container, pod)]
        headings = ("container", "type", "exclusive", "CPUs", "NUMA nodes", "L3 domains", "cores")
        _show_columns("", headings, rows, to)
    if pod.merge:
        _show_merge("pod", pod.merge, to)
    for container in pod.containers:
        _show_container(container, decision.message, to)
    if pod.objective:
        show_objective(pod.objective, to)
    if picture:
        to.print(cpumap(pod.state.machine, _owners(pod), width=to.width), markup=True, end="")
    for note in pod.notes:
        to.print(f"\nnote: {note}", markup=False)
    if not picture:
        to.print()


def _class(pod: PodExplanation) -> str:
    """Name the Kubernetes QoS class, and Koordinator's where the pod has one."""
    request = pod.request
    return " ".join(filter(None, (request.qos.value, request.placement_spec.qos)))


def _rows(container: ContainerExplanation, pod: PodExplanation) -> Iterator[tuple[str, ...]]:
    """Yield the container's line, and below it that of the runner-up."""
    cpus = str(container.cpus) or container.pool or f"shared pool {pod.decision.shared}"
    exclusive = str(len(container.cpus)) if container.cpus else "-"
    yield container.name, container.kind, exclusive, cpus, *_units(container.locality)
    if container.runner_up:
        yield "  runner-up", "", "", str(container.runner_up), *_units(container.runner_up_locality)


def _units(near: Locality | None) -> tuple[str, str, str]:
    if near is None:
        return "", "", ""
    split = f" ({near.split_cores} partly)" if near.split_cores else ""
    return str(near.numa_nodes), str(near.l3_domains), f"{near.cores}{split}"


def _show_container(container: ContainerExplanation, message: str, to: Console) -> None:
    """Print the steps of the choice, unless they only repeat the message of the decision."""
    name = container.name
    if container.candidates:
        wide = "more nodes than an idle machine needs"
        nodes = [
            (each.nodes, str(each.free), "chosen" if each.chosen else "", "" if each.preferred else wide)
            for each in container.candidates
        ]
        title = f"{name}: NUMA nodes with enough free CPUs, best first"
        _show_columns(title, ("NUMA nodes", "free CPUs", "", ""), nodes, to)
    if container.merge:
        _show_merge(name, container.merge, to)
    if container.memory or container.devices:
        headings = ("resource", "allocated", "on")
        _show_columns(f"{name}: memory and devices", headings, list(_resources(container)), to)
    steps = [(str(i), step.step, step.cpus, step.text) for i, step in enumerate(container.steps, 1)]
    if [step.text for step in container.steps] != [message]:
        _show_columns(f"{name}: steps of the decision", ("", "step", "CPUs", "reason"), steps, to)


def _show_columns(title: str, headings: Sequence[str], rows: Sequence[tuple[str, ...]], to: Console) -> None:
    """Print a table without the columns that are empty in every row."""
    used = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    cells = [[row[i] for i in used] for row in rows]
    tables.show(title, [headings[i] for i in used], cells, to)


def _resources(container: ContainerExplanation) -> Iterator[tuple[str, str, str]]:
    """Yield resource, amount or device ids, and NUMA nodes."""
    for block in container.memory:
        nodes = f"NUMA node{'s' * (len(block.nodes) > 1)} {block.nodes}"
        yield block.resource, _amount(block.resource, block.size), nodes
    for resource, ids in container.devices.items():
        yield resource, ", ".join(ids), ""


def _show_merge(name: str, merge: HintMerge, to: Console) -> None:
    rows = [
        (each.resource, _amount(each.resource, each.amount), _sets(each, True), _sets(each, False))
        for each in merge.providers
    ]
    winner = (merge.nodes, "") if merge.preferred else ("", merge.nodes)
    rows.append(("merged", "", *winner))
    headings = ("resource", "request", "preferred NUMA nodes", "other NUMA nodes")
    tables.show(f"{name}: topology hints", headings, rows, to)
    to.print(f"{name}: {_verdict(merge)}\n", markup=False)


def _sets(provider: ProviderHints, preferred: bool) -> str:
    if provider.word:
        return provider.word if preferred else ""
    text = "  ".join(choice.nodes for choice in provider.sets if choice.preferred == preferred)
    more = provider.total - len(provider.sets)
    return f"{text} and {more} more".strip() if more and not preferred else text


def _verdict(merge: HintMerge) -> str:
    """Return the topology manager's result."""
    if not merge.admitted:
        return "rejected by the topology manager: the resources have no preferred NUMA nodes in common"
    plural_s = "s" * (not merge.nodes.isdecimal())
    nodes = f"NUMA node{plural_s} {merge.nodes}" if merge.nodes else "any NUMA node"
    return f"{nodes} chosen by the topology manager ({'preferred' if merge.preferred else 'not preferred'})"


def _amount(resource: str, amount: int) -> str:
    """Return a number of CPUs or devices, or bytes in the largest binary unit that divides them."""
    is_memory = resource == "memory" or resource.startswith("hugepages-")
    return in_words(amount) if is_memory else str(amount)


def show_objective(objective: Objective, to: Console) -> None:
    """Print the terms by priority, the deciding one marked; or the changes by which the pod would fit."""
    if objective.terms:
        title = f"terms of the objective ({objective.allocator}): {_against(objective)}"
        _show_columns(title, ("", "term", "chosen", "runner-up", ""), list(_term_rows(objective)), to)
    if objective.remedies:
        to.print("The pod would fit after one of these changes:")
    lines = [*objective.notes, *(f"  {remedy.text}" for remedy in objective.remedies)]
    if lines:
        to.print("\n".join((*lines, "")), markup=False)


def _against(objective: Objective) -> str:
    runner_up = f", runner-up {objective.runner_up}" if objective.runner_up else ""
    return f"CPUs {objective.cpus}{runner_up}"


def _term_rows(objective: Objective) -> Iterator[tuple[str, ...]]:
    """Mark the deciding term, where the allocator goes by the objective."""
    differ = (term.name for term in objective.terms if term.runner_up not in (None, term.value))
    decides = next(differ, "") if objective.allocator == "optimal" else ""
    for term in objective.terms:
        text = f"{term.text}{' (higher is better)' if term.larger else ''}"
        other = "-" if term.runner_up is None else str(term.runner_up)
        yield term.number, text, str(term.value), other, "decides" if term.name == decides else ""


def show_comparison(pods: Sequence[Comparison], to: Console) -> None:
    """Print a table for each pod: a column for each allocator, a row for each term."""
    for pod in pods:
        names = {term.name: term.text for answer in pod.answers for term in answer.terms}
        rows = [("CPUs", *map(_cpus, pod.answers))]
        values = [{term.name: str(term.value) for term in answer.terms} for answer in pod.answers]
        rows += [(text, *(terms.get(name, "-") for terms in values)) for name, text in names.items()]
        tables.show(f"pod {pod.pod}", ("", *(answer.allocator for answer in pod.answers)), rows, to)
        for answer in pod.answers:
            if not answer.decision.admitted:
                to.print(f"rejected by {answer.allocator}: {answer.decision.message}", markup=False)


def _cpus(answer: AllocatorAnswer) -> str:
    containers = answer.decision.assignments
    if not answer.decision.admitted:
        return "rejected"
    if len(containers) == 1:
        return str(next(iter(containers.values())))
    return "; ".join(f"{name} {cpus}" for name, cpus in containers.items()) or "shared pool"


# Drawing.


def draw(pod: PodExplanation) -> str:
    """Return the machine as an SVG, coloured by owner; below it the hints, resources and objective."""
    return svg.svg(pod.state.machine, _owners(pod), captions=list(_captions(pod)))


def _captions(pod: PodExplanation) -> Iterator[str]:
    if pod.merge:
        yield from _merge_captions("pod", pod.merge)
    for container in pod.containers:
        if container.merge:
            yield from _merge_captions(container.name, container.merge)
        for resource, what, where in _resources(container):
            yield f"{container.name}: {resource} {what} {where}".rstrip()
    if pod.objective:
        objective = pod.objective
        if objective.terms:
            yield f"{objective.allocator}: {_against(objective)}"
        for number, text, value, other, decides in _term_rows(objective):
            against = "" if other == "-" else f" (runner-up {other})"
            yield f"{number}. {text}: {value}{against}{' decides' if decides else ''}"
        yield from objective.notes
        yield from (f"would fit: {remedy.text}" for remedy in objective.remedies)


def _merge_captions(name: str, merge: HintMerge) -> Iterator[str]:
    for provider in merge.providers:
        preferred, others = _sets(provider, True), _sets(provider, False)
        nodes = f"{preferred}; not preferred: {others}" if others else preferred
        yield f"{name}: {provider.resource} {_amount(provider.resource, provider.amount)}: {nodes}"
    yield f"{name}: {_verdict(merge)}"


def _owners(pod: PodExplanation) -> dict[int, Owner]:
    """Return the owner of each CPU: pools, earlier containers, then those of the pod."""
    owners = dict.fromkeys(pod.decision.shared, Owner("shared pool", "shared"))
    owners |= dict.fromkeys(pod.state.reserved, Owner("reserved", "reserved"))
    for cpu, entry in pod.state.owners().items():
        owners[cpu] = Owner(f"{entry.pod}/{entry.container}", entry.cls)
    for container in pod.containers:
        owners |= dict.fromkeys(container.cpus, Owner(f"{pod.request.key}/{container.name}", _class(pod)))
    return dict(sorted(owners.items()))
