"""What `corelane state` does with the kubelet's `memory_manager_state`: shows it, and verifies it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corelane.app import memory_settings
from corelane.app.state import files, kubelet_settings
from corelane.app.state.errors import SettingsError, StateFileError
from corelane.machine import Machine
from corelane.node.invariants import Problem
from corelane.node.kubelet import memory_checkpoint, memory_validation
from corelane.node.kubelet.memory_checkpoint import MemoryCheckpoint
from corelane.node.kubelet.memory_validation import Reserved
from corelane.node.kubelet.statefile import CheckpointError
from corelane.view import state as rules_view
from corelane.view import state_memory as view
from corelane.view import tables
from corelane.view.state import Rule
from corelane.view.state_memory import MemoryContents

__all__ = ["MemorySettings", "is_memory", "load", "refuse", "show", "verify"]

_REMOVE = "drain the node, then remove the file: the kubelet makes a new one"
_RULES = {
    "policy": "policy {policy} is the configured one",
    "empty": "the file knows this machine's memory",
    "blocks": "every container's memory is on a NUMA node that is there",
    "machine": "sizes, reservations and assignments are the machine's",
}


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What an operator says of the kubelet's memory manager; empty where nothing was said."""

    policy: str = ""
    reserved: Sequence[str] = ()
    """As the kubelet's `--reserved-memory` has it: `0:memory=1Gi,hugepages-1Gi=2Gi`."""
    config: Path | None = None
    """The kubelet's configuration; what is said beside it wins."""
    version: str = ""


def is_memory(path: Path) -> bool:
    """Whether the file is a memory manager's: by its content, or by its name where there is no content."""
    content = files.read(path)
    if memory_checkpoint.is_memory(content):
        return True
    return path.name.startswith("memory_manager_state") and not _is_object(content)


def _is_object(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def load(path: Path) -> MemoryContents:
    """The state in a file, with a `fault` when only its checksum is wrong. Raises StateFileError."""
    content = files.read(path)
    fault = ""
    try:
        found = memory_checkpoint.decode(content)
    except CheckpointError as error:
        fault = str(error)
        try:
            found = memory_checkpoint.decode(content, verify=False)
        except CheckpointError:
            raise StateFileError(f"{path}: {fault}") from None
    return MemoryContents(str(path), found, files.checksum(content), fault)


def show(path: Path, *, as_json: bool, say: files.Say) -> int:
    """Print a file's content; 0 when its checksum is right. Raises StateFileError."""
    contents = load(path)
    if as_json:
        say(json.dumps(view.plain_contents(contents), indent=2))
    else:
        view.show_contents(contents, tables.console())
    return _intact(contents)


def _intact(contents: MemoryContents) -> int:
    if contents.fault:
        raise StateFileError(f"{contents.file}: {contents.fault}")
    return 0


def verify(path: Path, machine: str | None, said: MemorySettings, *, as_json: bool, say: files.Say) -> int:
    """Print which rule of the memory manager's start would fail; 0 when it would start, else 1.

    Raises StateFileError for a file that cannot be read or whose checksum is wrong, and SettingsError.
    """
    contents = load(path)
    _intact(contents)
    found, hardware = contents.checkpoint, kubelet_settings.hardware(machine)
    policy, reserved, notes = _settings(found, hardware, said)
    minor = kubelet_settings.release(said.version) if said.version else 36
    problems = memory_validation.start_problems(found, hardware, policy, reserved)
    rules = [_version(found, minor), *_rules(found, policy, problems), *notes]
    if as_json:
        facts = {"policy": policy, "reserved": {str(node): dict(of) for node, of in reserved.items()}}
        say(json.dumps(rules_view.plain_rules(str(path), rules, facts), indent=2))
    else:
        rules_view.show_rules(str(path), rules, tables.console())
    return 1 if any(rule.verdict == "fails" for rule in rules) else 0


def _version(found: MemoryCheckpoint, minor: int) -> Rule:
    version = found.version
    if version == 2 and minor < 36:
        return Rule("version", "fails", f"1.{minor} knows no version 2: checkpoint is corrupted", _REMOVE)
    if version == 2 and minor == 36:
        text = "version 2 is read only where the feature gate PodLevelResourceManagers is on"
        return Rule("version", "warning", text, f"without the gate: {_REMOVE}")
    if version == 3 and minor < 37 and found.pods:
        text = f"1.{minor} reads version 3 as version 1, without the memory of whole pods"
        return Rule("version", "warning", text, "drain the pods with pod-level resources first")
    return Rule("version", "ok", f"version {version} is read by 1.{minor}")


def _rules(found: MemoryCheckpoint, policy: str, problems: list[Problem]) -> list[Rule]:
    """The rules that are looked at, in upstream's order: the first that fails ends the list."""
    rules: list[Rule] = []
    for code, passed in _RULES.items():
        if texts := [one.text for one in problems if one.code == code]:
            return [*rules, Rule(code, "fails", _together(texts), _remedy(code, found))]
        rules.append(Rule(code, "ok", passed.format(policy=policy)))
        if policy == "None":
            break
    return rules


def _together(texts: list[str]) -> str:
    """Upstream's words once, and a line for each thing that they stand for."""
    words, _, first = texts[0].partition(": ")
    details = [text.removeprefix(f"{words}: ") for text in texts]
    return texts[0] if len(texts) == 1 or not first else "\n".join([f"{words}:", *details])


def _remedy(code: str, found: MemoryCheckpoint) -> str:
    if code == "policy":
        return f"set memoryManagerPolicy: {found.policy or 'None'} again, or {_REMOVE}"
    return (
        f"set reservedMemory as it was, if that is what changed, or {_REMOVE}"
        if code == "machine"
        else _REMOVE
    )


def _settings(
    found: MemoryCheckpoint, machine: Machine, said: MemorySettings
) -> tuple[str, Reserved, list[Rule]]:
    """Policy and reservation; what nobody says of them is taken from the file, and that is said."""
    config = kubelet_settings.tree(said.config) if said.config else {}
    where = str(said.config)
    policy = said.policy.title() or (memory_settings.policy(where, config) if said.config else found.policy)
    reserved = (
        memory_settings.given(said.reserved)
        if said.reserved
        else memory_settings.configured(where, config.get("reservedMemory"))
    )
    nodes = {node.id for node in machine.nodes}
    if reserved is not None and (missing := sorted(set(reserved) - nodes)):
        raise SettingsError(
            f"{'--reserved-memory' if said.reserved else f'{where}: reservedMemory'}: references a NUMA node "
            f"{missing[0]} that does not exist on this machine: it has {', '.join(map(str, sorted(nodes)))}"
        )
    if reserved is not None or policy != "Static":
        return policy, reserved or {}, []
    note = "the reservation is not known, so the file's own is taken for right"
    remedy = "give --kubelet-config FILE, or --reserved-memory 0:memory=1Gi for each NUMA node"
    return policy, memory_validation.reserved_in(found), [Rule("reservation", "warning", note, remedy)]


def refuse(path: Path, what: str) -> None:
    """Raise StateFileError where a command that only knows `cpu_manager_state` is given the other file."""
    if path.exists() and is_memory(path):
        raise StateFileError(
            f"{path}: is a memory_manager_state, which `corelane state {what}` leaves alone: "
            f"`corelane state verify` says what is wrong with it; {_REMOVE}"
        )
