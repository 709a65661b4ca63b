"""Would the kubelet start with this state file? Each rule of its start, and a remedy where one fails.

The rules are those of `node.kubelet.validation` and `memory_validation`, after which release reads which
version of the file.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from corelane.cpuset import CPUSet, named, verb
from corelane.machine.model import Machine
from corelane.node.invariants import Problem
from corelane.node.kubelet import validation
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.memory_checkpoint import MemoryCheckpoint
from corelane.node.kubelet.validation import Reserved, start_problems
from corelane.node.ledger import NodeState
from corelane.reasons import Code, Reason

Verdict: TypeAlias = Literal["ok", "warning", "fails"]

_REPAIR: Final = Reason(Code.REMEDY_REPAIR)
_CONVERT: Final = Reason(Code.REMEDY_CONVERT)
_DRAIN_POD_LEVEL: Final = Reason(Code.REMEDY_DRAIN_POD_LEVEL)
_RESERVE_MEMORY: Final = Reason(Code.REMEDY_RESERVE_MEMORY)
_CODES: Final = ("policy", "pool", "reserved", "overlap", "total")
_MEMORY_RULES: Final = {
    "policy": "policy {policy} is the configured one",
    "empty": "the file has this machine's memory",
    "blocks": "every container's memory is on an existing NUMA node",
    "machine": "sizes, reservations and assignments match the machine",
}


@dataclass(frozen=True, slots=True)
class StartRule:
    """One rule of the kubelet's start: `text` is upstream's where it fails."""

    name: str
    verdict: Verdict
    text: str
    remedy: Reason | None = None


def broken(rules: list[StartRule]) -> list[StartRule]:
    """Return the rules with which the kubelet would not start."""
    return [rule for rule in rules if rule.verdict == "fails"]


def check(
    content: Checkpoint, state: NodeState, minor: int = 36, visible: Checkpoint | None = None
) -> list[StartRule]:
    """Check every rule in the order of the start of a kubelet 1.`minor`; `state` is the empty node.

    `visible` is what this kubelet reads in the file, where that is less than `content`.
    """
    rules = [_version(content, minor)]
    content = visible or content
    problems = start_problems(content, state.machine, state.config)
    for code in _codes(content, problems):
        failing = [problem for problem in problems if problem.code == code]
        rules += [
            StartRule(problem.code, "fails", problem.text, _remedy(problem, content, state))
            for problem in failing
        ] or [_passed(code, content, state)]
    return rules + [StartRule("twice", "warning", text, _REPAIR) for text in _shared_by_pods(content)]


def _codes(content: Checkpoint, problems: list[Problem]) -> tuple[str, ...]:
    """The rules that are checked: another policy, none, or an empty pool end the list."""
    if content.policy == "none" or any(problem.code == "policy" for problem in problems):
        return ("policy",)
    return _CODES if content.default else ("policy", "pool")


def _version(content: Checkpoint, minor: int) -> StartRule:
    name, version = "version", content.version
    if version == 1 and minor >= 37:
        return StartRule(name, "fails", f"kubelet 1.{minor} does not read version 1", _REPAIR)
    if version == 1:
        text = "version 1: to migrate it, the kubelet must find every container id among its containers"
        return StartRule(name, "warning", text, _REPAIR)
    if version == 3 and minor < 36:
        text = f"kubelet 1.{minor} does not read version 3: checkpoint is corrupted"
        return StartRule(name, "fails", text, _CONVERT)
    if version == 3 and minor == 36:
        text = "version 3 is read only with feature gate PodLevelResourceManagers"
        return StartRule(name, "warning", text, Reason(Code.REMEDY_CONVERT_WITHOUT_GATE))
    if version == 4 and minor < 37 and content.pods:
        text = f"kubelet 1.{minor} reads version 4 as version 2, without pod-level CPUs"
        return StartRule(name, "warning", text, _DRAIN_POD_LEVEL)
    return StartRule(name, "ok", f"kubelet 1.{minor} reads version {version}")


def _passed(code: str, content: Checkpoint, state: NodeState) -> StartRule:
    reserved = state.reserved.mask
    place = "not in" if state.config.options.strict_cpu_reservation else "in"
    texts = {
        "policy": f"policy {content.policy} is the configured one",
        "pool": f"shared pool is {content.default}" if content.default else "no CPUs allocated yet",
        "reserved": f"reserved {named(reserved)} {verb(reserved)} {place} the shared pool",
        "overlap": "no container has CPUs of the shared pool",
        "total": "shared pool and containers make up all CPUs",
    }
    return StartRule(code, "ok", texts[code])


def _remedy(problem: Problem, content: Checkpoint, state: NodeState) -> Reason:
    if problem.code == "pool":
        return Reason(Code.REMEDY_FREE_CPUS)
    if problem.code == "reserved" and state.config.options.strict_cpu_reservation:
        return Reason(Code.REMEDY_REMOVE_STRICT)
    if problem.code == "reserved":
        return Reason(Code.REMEDY_RESERVE_OTHERS, (str(content.default),))
    if problem.code == "total":
        missing, gone = problem.cpus & state.usable, problem.cpus - state.usable
        return Reason(Code.REMEDY_REPAIR_TOTAL, (missing.mask, gone.mask))
    return _REPAIR


def _shared_by_pods(content: Checkpoint) -> Iterator[str]:
    """CPUs of two pods, which the kubelet does not check."""
    earlier = 0
    for uid, containers in content.entries.items():
        mask = content.pods.get(uid, CPUSet()).mask
        for cpus in containers.values():
            mask |= cpus.mask
        if both := mask & earlier:
            owned = verb(both, "belongs", "belong")
            yield f"{named(both)} of pod {uid} also {owned} to another pod, which the kubelet accepts"
        earlier |= mask


def check_memory(
    content: MemoryCheckpoint,
    machine: Machine,
    policy: str,
    reserved: Reserved,
    minor: int = 36,
    node_allocatable: int | None = None,
) -> list[StartRule]:
    """Check the rules of a memory manager's start in upstream's order; the first failure ends the list.

    `node_allocatable` is as in `validation.reservation_problems`.
    """
    rules = [_memory_version(content, minor)]
    if policy == "Static":
        problem = next(validation.reservation_problems(reserved, node_allocatable), None)
        if problem:
            return [*rules, StartRule("reservation", "fails", problem.text, _RESERVE_MEMORY)]
    problems = validation.memory_start_problems(content, machine, policy, reserved, minor)
    for code, passed in _MEMORY_RULES.items():
        if texts := [problem.text for problem in problems if problem.code == code]:
            remedy = _memory_remedy(code, content)
            if (
                code == "machine"
                and minor < 32
                and not validation.memory_start_problems(content, machine, policy, reserved)
            ):
                remedy = Reason(Code.REMEDY_MEMORY_GROUP)
            return [*rules, StartRule(code, "fails", _joined(texts), remedy)]
        rules.append(StartRule(code, "ok", passed.format(policy=policy)))
        if policy == "None":
            break
    return rules


def _memory_version(content: MemoryCheckpoint, minor: int) -> StartRule:
    version = content.version
    if version == 2 and minor < 36:
        text = f"kubelet 1.{minor} does not read version 2: checkpoint is corrupted"
        return StartRule("version", "fails", text, Reason(Code.REMEDY_REMOVE))
    if version == 2 and minor == 36:
        text = "version 2 is read only with feature gate PodLevelResourceManagers"
        return StartRule("version", "warning", text, Reason(Code.REMEDY_REMOVE_WITHOUT_GATE))
    if version == 3 and minor < 37 and content.pods:
        text = f"kubelet 1.{minor} reads version 3 as version 1, without pod-level memory"
        return StartRule("version", "warning", text, _DRAIN_POD_LEVEL)
    return StartRule("version", "ok", f"kubelet 1.{minor} reads version {version}")


def _joined(texts: list[str]) -> str:
    """A line for each problem; words that all begin with, up to a colon, only once."""
    words, _, _ = texts[0].partition(": ")
    if len(texts) == 1 or words.count("(") > words.count(")"):
        return "\n".join(texts)
    return "\n".join([f"{words}:", *(text.removeprefix(f"{words}: ") for text in texts)])


def _memory_remedy(code: str, content: MemoryCheckpoint) -> Reason:
    if code == "policy":
        return Reason(Code.REMEDY_MEMORY_POLICY, (content.policy or "None",))
    if not content.entries:
        return Reason(Code.REMEDY_REMOVE_UNUSED)
    return Reason(Code.REMEDY_RESERVED_MEMORY if code == "machine" else Code.REMEDY_REMOVE)
