"""What `corelane state` does with a `cpu_manager_state`: shows, verifies, converts and repairs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from corelane.app.state import (
    cgroups,
    cri_names,
    files,
    kubelet_settings,
    memory_files,
    owners,
    pod_lists,
    rebuilding,
    start_rules,
)
from corelane.app.state.errors import RepairError, StateFileError
from corelane.app.state.files import Loaded, Say
from corelane.app.state.kubelet_settings import Settings
from corelane.node import NodeState
from corelane.node.kubelet import checkpoint
from corelane.node.kubelet.checkpoint import Checkpoint, Version
from corelane.view import state as view
from corelane.view import tables
from corelane.view.state import Difference

__all__ = ["Plan", "Where", "apply", "convert", "plan", "repair", "show", "verify"]


@dataclass(frozen=True, slots=True)
class Where:
    """Where to look for what runs: a root with /sys/fs/cgroup and /var/log/containers, and who has names."""

    root: Path = Path("/")
    pods: Path | None = None
    """A list of pods."""
    cri: str = ""
    """A container runtime's socket."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A repair that can be carried out: the file as it was read (None: there was none) and as it will be."""

    path: Path
    before: bytes | None
    after: bytes
    difference: Difference


def show(path: Path, *, as_json: bool, say: Say) -> int:
    """Print a file's content; 0 when its checksum is right. Raises StateFileError."""
    loaded = files.load(path)
    contents = view.Contents(str(path), loaded.checkpoint, loaded.checksum, loaded.fault)
    if as_json:
        say(json.dumps(view.plain_contents(contents), indent=2))
    else:
        view.show_contents(contents, tables.console())
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    return 0


def verify(path: Path, machine: str | None, settings: Settings, *, as_json: bool, say: Say) -> int:
    """Print which rule of the kubelet's start would fail; 0 when it would start, else 1.

    Raises StateFileError for a file that cannot be read or whose checksum is wrong.
    """
    loaded = _intact(path)
    state, settings = _node(machine, settings, loaded)
    minor = _minor(settings, loaded)
    rules = start_rules.check(loaded.checkpoint, state, minor, files.seen_by(loaded, minor))
    if as_json:
        facts = {"policy": state.config.policy, "reserved": str(state.reserved), "cpus": str(state.usable)}
        say(json.dumps(view.plain_rules(str(path), rules, facts), indent=2))
    else:
        view.show_rules(str(path), rules, tables.console())
    return 1 if start_rules.broken(rules) else 0


def _intact(path: Path) -> Loaded:
    loaded = files.load(path)
    if loaded.fault:
        raise StateFileError(f"{path}: {loaded.fault}")
    return loaded


def _node(machine: str | None, settings: Settings, loaded: Loaded | None) -> tuple[NodeState, Settings]:
    """The empty node; without a policy in the settings it is the file's."""
    if not settings.policy and loaded and loaded.checkpoint.policy in ("none", "static"):
        settings = replace(settings, policy=loaded.checkpoint.policy)
    return kubelet_settings.start(kubelet_settings.hardware(machine), settings), settings


def _minor(settings: Settings, loaded: Loaded) -> int:
    """The kubelet's release: without a word the one that writes such files."""
    if settings.version:
        return kubelet_settings.release(settings.version)
    return 37 if loaded.checkpoint.version == 4 else 36


def convert(path: Path, version: int, *, say: Say) -> int:
    """Write the file in another version, with a backup. Raises StateFileError, with the file untouched."""
    memory_files.refuse(path, "convert")
    loaded = files.load(path)
    if loaded.checkpoint.version == version and not loaded.fault:
        say(f"{path} is of version {version} already: nothing written")
        return 0
    content = files.convert(loaded, version)
    backup = files.replace_file(path, loaded.content, content)
    say(f"{path} is of version {version} now, was {loaded.checkpoint.version}; backup: {backup}")
    if loaded.checkpoint.pods and version == 2:
        say(f"left out, as version 2 has none: CPUs of {len(loaded.checkpoint.pods)} pods as a whole")
    return 0


def plan(path: Path, machine: str | None, settings: Settings, where: Where, version: int | None) -> Plan:
    """What a repair would write, and the difference. Raises StateFileError, SettingsError, RepairError."""
    memory_files.refuse(path, "repair")
    content, old, trusted, notes = _old(path)
    loaded = Loaded(path, content or b"", old, None) if old else None
    state, settings = _node(machine, settings, loaded)
    evidence, more = _evidence(state, where, old, trusted)
    target = version or _same_version(old)
    rebuilt = rebuilding.rebuild(owners.claims(evidence), state, old, whole_pods=target != 2)
    after = checkpoint.encode(rebuilt.checkpoint, cast("Version", target))
    _check(checkpoint.decode(after), state)
    notes += [*more, *rebuilt.notes, *_unnamed(rebuilt, evidence)]
    changed = not old or not trusted or old != replace(rebuilt.checkpoint, version=cast("Version", target))
    difference = Difference(
        str(path), old, rebuilt.checkpoint, target, rebuilt.changes, tuple(notes), changed
    )
    return Plan(path, content, after, difference)


def _old(path: Path) -> tuple[bytes | None, Checkpoint | None, bool, list[str]]:
    """The file's bytes and what can be made of them, whether that is to be trusted, and what to say of it."""
    if not path.exists():
        return None, None, False, [f"{path} does not exist: a new one is made"]
    content = files.read(path)
    try:
        loaded = files.load(path)
    except StateFileError as error:
        return content, None, False, [str(error).partition(";")[0]]
    if loaded.fault:
        why = f"{path}: {loaded.fault.partition(';')[0]}: its entries only serve to name what runs"
        return content, loaded.checkpoint, False, [why]
    return content, loaded.checkpoint, True, []


def _evidence(
    state: NodeState, where: Where, old: Checkpoint | None, trusted: bool
) -> tuple[owners.Evidence, list[str]]:
    groups = cgroups.read(str(where.root / "sys/fs/cgroup"))
    listed = pod_lists.read(where.pods) if where.pods else pod_lists.Listed({})
    told = cri_names.request(where.cri, groups) if where.cri else cri_names.Told()
    names = {**pod_lists.logged(str(where.root / "var/log/containers")), **told.names}
    notes = [*listed.notes, *told.notes]
    notes += cgroups.kubelets(where.root / "proc")
    if groups and not where.pods and not where.cri:
        notes.append("no list of pods (--pods): what containers ask for is guessed from their cpusets")
    containers = [*(group for group in groups if group.id not in told.sandboxes), *told.unseen]
    if groups and told.unseen:
        notes.append(f"owners without a cgroup here, by the runtime's word: {len(told.unseen)}")
    alive = dict(told.alive)
    if not groups and (note := _unseen(where, told, old if trusted else None)):
        alive |= dict.fromkeys(old.entries if old else (), "")
        notes.append(note)
    evidence = owners.Evidence(
        containers,
        pods=listed.pods,
        names=names,
        needs=told.needs,
        alive=alive,
        old=old,
        trusted=trusted,
        reserved=state.reserved,
    )
    return evidence, notes


def _unseen(where: Where, told: cri_names.Told, old: Checkpoint | None) -> str:
    """What to note where no pod runs, so far as can be seen; without a note no CPU has an owner.

    That may be so after a reboot, or seen from inside a container. Raises RepairError where owners might be
    forgotten.
    """
    place = where.root / "sys/fs/cgroup"
    if told.running:
        raise RepairError(
            f"{where.cri}: {told.running} containers run, but none has a cgroup below {place}: "
            "run this on the node itself, or name its root directory with --root"
        )
    if where.pods or where.cri:
        return f"no pod runs below {place}"
    if old and old.version != 1:
        return f"no pod runs below {place}: entries stay, and the kubelet clears those that no pod names"
    raise RepairError(
        f"no pod runs below {place}, and the file has nothing to go by: if that is so, --cri or --pods FILE "
        "will confirm it; else run this on the node itself, or name its root directory with --root"
    )


def _unnamed(rebuilt: rebuilding.Rebuilt, evidence: owners.Evidence) -> list[str]:
    unknown = {f"unknown-{group.id[:12]}" for group in evidence.groups}
    names = [name for of in rebuilt.checkpoint.entries.values() for name in of if name in unknown]
    if not names:
        return []
    many = "1 owner has" if len(names) == 1 else f"{len(names)} owners have"
    note = (
        f"{many} no name: their CPUs stay blocked until the kubelet clears entries that no pod names; "
        "with --pods FILE or --cri they keep them"
    )
    return [note]


def _same_version(old: Checkpoint | None) -> int:
    return old.version if old and old.version != 1 else 2


def _check(found: Checkpoint, state: NodeState) -> None:
    """What we write must start the kubelet: anything else would be a fault of ours."""
    failing = start_rules.broken(start_rules.check(found, state))
    if failing:
        raise RepairError(f"{failing[0].name}: {failing[0].text}: this cannot be repaired")


def repair(found: Plan, *, dry_run: bool, confirm: Callable[[], bool], as_json: bool, say: Say) -> int:
    """Show the difference, ask, and write. 0 when written or not needed, 1 when the user said no."""
    if not as_json:
        view.show_difference(found.difference, tables.console())
    backup, written = None, False
    if not dry_run and found.difference.needed:
        if not confirm():
            say("nothing written")
            return 1
        backup, written = apply(found), True
    if as_json:
        plain = view.plain_difference(
            found.difference, written=written, backup=str(backup) if backup else None
        )
        say(json.dumps(plain, indent=2))
    else:
        say(_outcome(found, written=written, backup=backup))
    return 0


def _outcome(found: Plan, *, written: bool, backup: Path | None) -> str:
    if written:
        return f"{found.path} is written" + (f"; backup: {backup}" if backup else "")
    return "dry run: nothing written" if found.difference.needed else "the file fits: nothing to repair"


def apply(found: Plan) -> Path | None:
    """Carry a plan out; returns the backup. Raises StateFileError when the file has changed since."""
    return files.replace_file(found.path, found.before, found.after)
