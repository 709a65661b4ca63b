"""Would the kubelet start with this state? Each rule of its start in a line, and what to do where one fails.

The rules themselves are `node.validation`'s; what a release can read of a file's version is added here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from corelane.cpuset import CPUSet, named, verb
from corelane.node import NodeState
from corelane.node.invariants import Problem
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.validation import start_problems
from corelane.view.state import Rule

__all__ = ["broken", "check"]

_REPAIR: Final = "`corelane state repair` writes a file that fits and keeps what is running"
_CODES: Final = ("policy", "pool", "reserved", "overlap", "total")


def check(found: Checkpoint, state: NodeState, minor: int = 36, seen: Checkpoint | None = None) -> list[Rule]:
    """Every rule in the order of the start of a kubelet 1.`minor`; `state` is the empty node.

    `seen` is what this kubelet makes of the file, where that is less than `found`.
    """
    rules = [_version(found, minor)]
    found = seen or found
    problems = start_problems(found, state.machine, state.config)
    for code in _codes(found, problems):
        failing = [problem for problem in problems if problem.code == code]
        rules += [_failing(problem, found, state) for problem in failing] or [_passed(code, found, state)]
    return rules + [Rule("twice", "warning", text, _REPAIR) for text in _twice(found)]


def broken(rules: list[Rule]) -> list[Rule]:
    """Those with which the kubelet would not start."""
    return [rule for rule in rules if rule.verdict == "fails"]


def _codes(found: Checkpoint, problems: list[Problem]) -> tuple[str, ...]:
    """The rules that are looked at: another policy, none, or an empty pool end the list."""
    if found.policy == "none" or any(problem.code == "policy" for problem in problems):
        return ("policy",)
    return _CODES if found.default else ("policy", "pool")


def _version(found: Checkpoint, minor: int) -> Rule:
    name, version = "version", found.version
    if version == 1 and minor >= 37:
        return Rule(name, "fails", f"1.{minor} no longer reads version 1", _REPAIR)
    if version == 1:
        text = "version 1: the kubelet must find every container id among its containers to migrate it"
        return Rule(name, "warning", text, _REPAIR)
    if version == 3 and minor < 36:
        text = f"1.{minor} knows no version 3: checkpoint is corrupted"
        return Rule(name, "fails", text, "`corelane state convert --to v2` drops pod-level CPUs")
    if version == 3 and minor == 36:
        text = "version 3 is read only where the feature gate PodLevelResourceManagers is on"
        return Rule(name, "warning", text, "without the gate: `corelane state convert --to v2`")
    if version == 4 and minor < 37 and found.pods:
        text = f"1.{minor} reads version 4 as version 2, without pod-level CPUs"
        return Rule(name, "warning", text, "drain the pods with pod-level resources first")
    return Rule(name, "ok", f"version {version} is read by 1.{minor}")


def _passed(code: str, found: Checkpoint, state: NodeState) -> Rule:
    reserved = state.reserved.mask
    place = "not in" if state.config.options.strict_cpu_reservation else "in"
    texts = {
        "policy": f"policy {found.policy} is the configured one",
        "pool": f"the shared pool is {found.default}" if found.default else "nothing is handed out yet",
        "reserved": f"reserved {named(reserved)} {verb(reserved)} {place} the shared pool",
        "overlap": "no container's CPUs are in the shared pool",
        "total": "shared pool and containers make up all CPUs",
    }
    return Rule(code, "ok", texts[code])


def _failing(problem: Problem, found: Checkpoint, state: NodeState) -> Rule:
    return Rule(problem.code, "fails", problem.text, _remedy(problem, found, state))


def _remedy(problem: Problem, found: Checkpoint, state: NodeState) -> str:
    if problem.code == "pool":
        return (
            "start the kubelet without strict-cpu-reservation, reserve fewer CPUs, or end one of the pods; "
            "then `corelane state repair`"
        )
    if problem.code == "reserved":
        strict = state.config.options.strict_cpu_reservation
        other = "leave strict-cpu-reservation out" if strict else f"reserve CPUs of {found.default}"
        return f"{_REPAIR}; or {other}"
    if problem.code == "total":
        missing, gone = (problem.cpus & state.usable).mask, (problem.cpus - state.usable).mask
        said = [f"{named(missing)} {verb(missing, 'has', 'have')} no place in the file"] if missing else []
        said += [f"{named(gone)} {verb(gone)} in the file, not in the machine"] if gone else []
        return f"{', '.join(said)}: {_REPAIR}"
    return _REPAIR


def _twice(found: Checkpoint) -> Iterator[str]:
    """What the kubelet does not check: CPUs of two pods."""
    everybody = 0
    for uid, containers in found.entries.items():
        mask = found.pods.get(uid, CPUSet()).mask
        for cpus in containers.values():
            mask |= cpus.mask
        if both := mask & everybody:
            yield f"{named(both)} of pod {uid} {verb(both)} another pod's too, which the kubelet accepts"
        everybody |= mask
