"""`corelane state show`, `verify` and `convert`: what each does with one of the kubelet's state files."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from corelane import node
from corelane.app import kubelet_settings
from corelane.app.kubelet_settings import KubeletOptions
from corelane.app.state import cgroups, container_names, files
from corelane.app.state.container_names import RuntimeReport
from corelane.app.state.files import Say, StateFileError
from corelane.node.kubelet import checkpoint, statefile, validation
from corelane.node.kubelet.checkpoint import Checkpoint, Version
from corelane.node.kubelet.statefile import CheckpointError
from corelane.node.kubelet.validation import StartRule
from corelane.node.ledger import NodeState
from corelane.node.recovery import cpu_owners, rebuilding
from corelane.node.recovery.cpu_owners import Observation
from corelane.node.recovery.rebuilding import RepairError, StateDifference
from corelane.reasons import Code, Reason
from corelane.view import state as view
from corelane.view import tables


def show(path: Path, *, as_json: bool, say: Say) -> int:
    """Print a file's content; 0 if its checksum is right. Raises StateFileError."""
    if files.is_memory(path):
        memory = files.load_memory(path)
        fault = memory.fault
        if as_json:
            say(json.dumps(view.plain_memory_contents(memory), indent=2))
        else:
            view.show_memory_contents(memory, tables.console())
    else:
        loaded = files.load(path)
        fault = loaded.fault
        if as_json:
            say(json.dumps(view.plain_contents(loaded), indent=2))
        else:
            view.show_contents(loaded, tables.console())
        files.refuse_foreign(loaded)
    if fault:
        raise StateFileError(f"{path}: {fault}")
    return 0


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


@dataclass(frozen=True, slots=True)
class RepairSources:
    """Where to observe the node: a root with /sys/fs/cgroup and /var/log/containers, and sources of names."""

    root: Path = Path("/")
    pods: Path | None = None
    """A list of pods."""
    cri: str = ""
    """A container runtime's socket."""

    @property
    def cgroups(self) -> Path:
        return self.root / "sys/fs/cgroup"


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """A repair that can be applied: the file as it was read (None: there was none) and as it will be."""

    path: Path
    before: bytes | None
    after: bytes
    difference: StateDifference


def plan(
    path: Path, machine: str | None, settings: KubeletOptions, sources: RepairSources, version: int | None
) -> RepairPlan:
    """Return what a repair would write, and the difference.

    Raises StateFileError, SettingsError, RepairError.
    """
    files.refuse_memory(path, "repair")
    content, recorded, intact, notes = _recorded(path)
    tail = content is not None and bool(statefile.whole_object(content))
    state, settings = empty_node(machine, settings, recorded)
    observed, more = _observe(state, sources, recorded, intact=intact)
    target = cast("Version", version or (recorded.version if recorded and recorded.version != 1 else 2))
    rebuilt = rebuilding.rebuild(cpu_owners.cpu_owners(observed), state, recorded, whole_pods=target != 2)
    after = checkpoint.encode(rebuilt.checkpoint, target)
    if failing := validation.broken(validation.check(checkpoint.decode(after), state)):
        raise RepairError(f"{failing[0].name}: {failing[0].text}: this cannot be repaired")
    unknown = {cpu_owners.placeholder(container) for container in observed.containers}
    notes += [*more, *rebuilt.notes]
    if count := sum(name in unknown for of in rebuilt.checkpoint.entries.values() for name in of):
        subject = "1 owner has no name: its" if count == 1 else f"{count} owners have no name: their"
        notes.append(
            f"{subject} CPUs stay allocated until the kubelet removes entries without a pod; "
            "give --pods FILE or --cri to keep them allocated"
        )
    needed = tail or not intact or recorded != replace(rebuilt.checkpoint, version=target)
    difference = StateDifference(
        str(path), recorded, rebuilt.checkpoint, target, rebuilt.changes, tuple(notes), needed
    )
    return RepairPlan(path, content, after, difference)


def _recorded(path: Path) -> tuple[bytes | None, Checkpoint | None, bool, list[str]]:
    """The file's bytes, its content as far as it can be read, whether that is intact, and notes."""
    if not path.exists():
        return None, None, False, [f"{path} does not exist: a new file is created"]
    content = files.read(path)
    try:
        loaded = files.load(path)
    except StateFileError as error:
        return content, None, False, [str(error)]
    if loaded.whole:
        return content, loaded.checkpoint, True, [f"{path}: {loaded.fault}; the first state is used"]
    if loaded.fault:
        note = f"{path}: {loaded.fault}; its entries are only used to name running containers"
        return content, loaded.checkpoint, False, [note]
    return content, loaded.checkpoint, True, []


def _observe(
    state: NodeState, sources: RepairSources, recorded: Checkpoint | None, *, intact: bool
) -> tuple[Observation, list[str]]:
    containers = cgroups.read(str(sources.cgroups))
    listed = container_names.read_pod_list(sources.pods) if sources.pods else container_names.PodList({})
    report = container_names.names_from_runtime(sources.cri, containers) if sources.cri else RuntimeReport()
    notes = [*listed.notes, *report.notes, *cgroups.kubelets(sources.root / "proc")]
    if containers and not sources.pods and not sources.cri:
        notes.append("without a list of pods (--pods), CPU requests are guessed from cpusets")
    if containers and report.without_cgroup:
        notes.append(f"owners without a cgroup here, reported by the runtime: {len(report.without_cgroup)}")
    ready = dict(report.ready)
    # Containers run by the list, with exclusive CPUs, without a cgroup here or an entry that stays.
    seen = {one.id for one in (*containers, *report.without_cgroup)}
    missing = []
    for uid, pod in listed.pods.items():
        stays = intact and recorded and recorded.version != 1
        entries = recorded.entries.get(uid, {}) if stays and recorded else {}
        for ident, name in pod.ids.items():
            need = pod.containers.get(name)
            if ident in pod.running and ident not in seen and need and need.cpus and name not in entries:
                missing.append(f"{pod.title}/{name} ({ident[:12]})")
    if missing:
        raise RepairError(
            f"{sources.pods}: {', '.join(missing[:3])} runs with exclusive CPUs, but has no cgroup below "
            f"{sources.cgroups}: its CPUs would be given to others; run this on the node itself, give its "
            "root directory with --root, or, if it has ended since, a newer list"
        )
    if not containers and (note := _nothing_runs(sources, report, recorded if intact else None)):
        ready |= dict.fromkeys(recorded.entries if recorded else (), "")
        notes.append(note)
    observed = Observation(
        [*(one for one in containers if one.id not in report.sandboxes), *report.without_cgroup],
        pods=listed.pods,
        names={**container_names.logged(str(sources.root / "var/log/containers")), **report.names},
        requests=report.requests,
        ready=ready,
        recorded=recorded,
        intact=intact,
        reserved=state.reserved,
    )
    return observed, notes


def _nothing_runs(sources: RepairSources, report: RuntimeReport, recorded: Checkpoint | None) -> str:
    """Return a note where no pod is seen to run, as after a reboot, or from inside a container.

    Raises RepairError where running owners could be missed.
    """
    if report.running:
        raise RepairError(
            f"{sources.cri}: {report.running} containers run, but none has a cgroup below {sources.cgroups}; "
            "run this on the node itself, or give its root directory with --root"
        )
    if sources.pods or sources.cri:
        return f"no pod runs below {sources.cgroups}"
    if recorded and recorded.version != 1:
        return (
            f"no pod runs below {sources.cgroups}: entries stay, and the kubelet removes those of ended pods"
        )
    raise RepairError(
        f"no pod runs below {sources.cgroups}, and the file has no usable entries; "
        "if the node is empty, confirm that with --cri or --pods FILE; else run this on the node itself, "
        "or give its root directory with --root"
    )


def repair(
    planned: RepairPlan, *, dry_run: bool, confirm: Callable[[], bool], as_json: bool, say: Say
) -> int:
    """Show the difference, ask, and write. 0 if written or not needed, 1 if declined."""
    difference = planned.difference
    if not as_json:
        view.show_difference(difference, tables.console())
    backup, written = None, False
    if not dry_run and difference.needed:
        if not confirm():
            say("nothing written")
            return 1
        backup, written = apply(planned), True
    if as_json:
        plain = view.plain_difference(difference, written=written, backup=str(backup) if backup else None)
        say(json.dumps(plain, indent=2))
    elif written:
        say(f"{planned.path}: written" + (f"; backup: {backup}" if backup else ""))
    else:
        say("dry run: nothing written" if difference.needed else "the file fits: nothing to repair")
    return 0


def apply(planned: RepairPlan) -> Path | None:
    """Apply a plan; returns the backup. Raises StateFileError where the file has changed since."""
    return files.replace_file(planned.path, planned.before, planned.after)
