"""`corelane state show`, `verify` and `convert`: what each does with one of the kubelet's state files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from corelane import node
from corelane.app import kubelet_settings
from corelane.app.kubelet_settings import KubeletOptions
from corelane.app.state import files
from corelane.app.state.files import Say, StateFileError
from corelane.node.kubelet import validation
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.kubelet.memory_checkpoint import MemoryCheckpoint
from corelane.node.kubelet.statefile import CheckpointError
from corelane.node.kubelet.validation import StartRule
from corelane.node.ledger import NodeState
from corelane.node.recovery import rebuilding
from corelane.node.recovery.rebuilding import StateFile
from corelane.reasons import Code, Reason
from corelane.view import state as view
from corelane.view import tables

if TYPE_CHECKING:
    from rich.console import Console

_Content = TypeVar("_Content", Checkpoint, MemoryCheckpoint)


def show(path: Path, *, as_json: bool, say: Say) -> int:
    """Print a file's content; 0 if its checksum is right. Raises StateFileError."""
    to = say if as_json else None
    if files.is_memory(path):
        memory = files.load_memory(path)
        _show(memory, view.plain_memory_contents, view.show_memory_contents, to)
        fault = memory.fault
    else:
        loaded = files.load(path)
        _show(loaded, view.plain_contents, view.show_contents, to)
        files.refuse_foreign(loaded)
        fault = loaded.fault
    if fault:
        raise StateFileError(f"{path}: {fault}")
    return 0


def _show(
    loaded: StateFile[_Content],
    plain: Callable[[StateFile[_Content]], dict[str, Any]],
    draw: Callable[[StateFile[_Content], Console], None],
    say: Say | None,
) -> None:
    if say:
        say(json.dumps(plain(loaded), indent=2))
    else:
        draw(loaded, tables.console())


def verify(path: Path, machine: str | None, settings: KubeletOptions, *, as_json: bool, say: Say) -> int:
    """Print which rule of the kubelet's start would fail; 0 if it would start, else 1.

    Raises StateFileError for a file that cannot be read or whose checksum is wrong.
    """
    loaded = files.load_intact(path)
    state, settings = empty_node(machine, settings, loaded.checkpoint)
    minor = _minor(settings, 37 if loaded.checkpoint.version == 4 else 36)
    try:
        visible = rebuilding.read_by(loaded, minor)
    except CheckpointError as error:
        raise StateFileError(f"{path}: {error}") from None
    rules = [*validation.check(loaded.checkpoint, state, minor, visible), *_unknown_fields(settings)]
    facts = {"policy": state.config.policy, "reserved": str(state.reserved), "cpus": str(state.usable)}
    return _print_rules(path, rules, facts, say if as_json else None)


def _unknown_fields(settings: KubeletOptions) -> list[StartRule]:
    """A kubelet logs fields that it does not have, and goes on without them."""
    return [
        StartRule(
            "field",
            "warning",
            f"{settings.source}: {name} is not a field of a KubeletConfiguration: the kubelet ignores it",
            Reason(Code.REMEDY_UNKNOWN_FIELD, (f"{meant}?" if meant else "none is similar",)),
        )
        for name, meant in settings.unknown.items()
    ]


def _print_rules(path: Path, rules: list[StartRule], facts: Mapping[str, Any], say: Say | None) -> int:
    if say:
        say(json.dumps(view.plain_rules(str(path), rules, facts), indent=2))
    else:
        view.show_rules(str(path), rules, tables.console())
    return 1 if validation.broken(rules) else 0


def empty_node(
    machine: str | None, settings: KubeletOptions, recorded: Checkpoint | None
) -> tuple[NodeState, KubeletOptions]:
    """Return the node without pods, and its settings: without a policy of their own with the file's."""
    if not settings.policy and recorded and recorded.policy in ("none", "static"):
        settings = replace(settings, policy=recorded.policy)
    return node.new(kubelet_settings.hardware(machine), kubelet_settings.config(settings)), settings


def _minor(settings: KubeletOptions, default: int) -> int:
    """The kubelet's release; by default one that writes such a file."""
    return kubelet_settings.release(settings.version) if settings.version else default


def verify_memory(
    path: Path, machine: str | None, settings: KubeletOptions, *, as_json: bool, say: Say
) -> int:
    """Print which rule of the memory manager's start would fail; 0 if it would start, else 1.

    What the settings lack is taken from the file, a reservation with a warning. Raises StateFileError for a
    file that cannot be read or whose checksum is wrong, and SettingsError.
    """
    loaded = files.load_memory(path)
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    content, hardware = loaded.checkpoint, kubelet_settings.hardware(machine)
    policy = settings.memory_policy or ("None" if settings.source else content.policy)
    reserved, notes = settings.reserved_memory, []
    if reserved is not None:
        kubelet_settings.check_nodes(settings.reserved_memory_source, reserved, hardware)
    elif policy == "Static" and not settings.source:
        reserved, notes = validation.reserved_in(content), [_UNKNOWN_RESERVATION]
    node_allocatable = settings.reserved_node_memory(hardware)
    minor = _minor(settings, 36)
    rules = validation.check_memory(content, hardware, policy, reserved or {}, minor, node_allocatable)
    rules += _unknown_fields(settings)
    facts = {"policy": policy, "reserved": {str(node): dict(of) for node, of in (reserved or {}).items()}}
    return _print_rules(path, [*rules, *notes], facts, say if as_json else None)


_UNKNOWN_RESERVATION = StartRule(
    "reservation",
    "warning",
    "reservation unknown: the file's own is taken as right",
    Reason(Code.REMEDY_GIVE_RESERVATION),
)


def convert(path: Path, version: int, *, say: Say) -> int:
    """Write the file in another version, with a backup. Raises StateFileError, with the file unchanged."""
    files.refuse_memory(path, "convert")
    loaded = files.load(path)
    files.refuse_foreign(loaded)
    found = loaded.checkpoint
    if found.version == version and not loaded.fault:
        say(f"{path}: already version {version}; nothing written")
        return 0
    try:
        content = rebuilding.convert(loaded, version)
    except CheckpointError as error:
        raise StateFileError(f"{path}: {error}") from None
    backup = files.replace_file(path, loaded.content, content)
    say(f"{path}: converted from version {found.version} to {version}; backup: {backup}")
    if found.pods and version == 2:
        say(f"pod-level CPUs of {len(found.pods)} pods are left out: version 2 cannot hold them")
    return 0
