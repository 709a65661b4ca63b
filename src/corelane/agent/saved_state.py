"""Files that an agent keeps between two runs: its ledger, and the node settings in effect.

Labels and annotations of the Node override the configuration that the agent was started with. An invalid
label or annotation changes nothing: its last valid value stays in effect. The values in effect are saved, so
that a start does not depend on an API server.

A durable ledger is replaced whole, and is on disk before a container changes. One that only has to survive
this process, because no container of the node survives the machine, gets a line with each change instead: a
replaced file costs a hundred times as much.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from corelane import input_files
from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.reporting import AgentReporter
from corelane.kernel import files
from corelane.kube import keys
from corelane.kube.translate import node_labels
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.model import Machine
from corelane.node import NodeConfigError, codec
from corelane.node.config import NodeConfig, check
from corelane.node.ledger import LedgerError, NodeState, new, usable_topology
from corelane.node.recovery.rebasing import rebase

_MOST_LINES: Final = 200
"""Lines after which the file is written anew; more with many entries."""

_Version: TypeAlias = tuple[int, int, int]
"""Inode, size and time of the last change: another one was not written by this process."""


def save_ledger(path: Path, ledger: NodeState, *, durable: bool = True) -> None:
    """Replace the ledger's file; until the new content is on disk the old file stays.

    `durable` is as of `files.write_atomic`. Raises OSError.
    """
    files.write_atomic(path, codec.encode(ledger), mode=0o600, durable=durable)


class ChangedFile:
    """A file that is not durable, to which changes are appended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: NodeState | None = None
        """What the file says, None where it is to be written whole."""
        self._version: _Version | None = None
        self._lines = 0

    def save(self, ledger: NodeState) -> None:
        """Make the file one of this ledger. Raises OSError; the file is then as it was."""
        most = max(_MOST_LINES, 2 * len(ledger.entries))
        if self._written is None or self._lines >= most or self._version != _version(self._path):
            self._written = None
            save_ledger(self._path, ledger, durable=False)
            self._lines = 0
        elif ledger is not self._written:
            files.append(self._path, codec.encode_changes(self._written, ledger))
            self._lines += 1
        self._written, self._version = ledger, _version(self._path)


def _version(path: Path) -> _Version | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - a tenth of the time of Path.stat
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


LEDGER_FILE: Final = "ledger.json"
SETTINGS_FILE: Final = "settings.json"
_RETRY_SETTINGS: Final = 10.0
_LABELS: Final = (
    keys.NODE_POLICY,
    keys.NODE_ALLOCATOR,
    keys.NODE_BIND_POLICY,
    keys.NODE_BIND_POLICY_PROPOSED,
    keys.NODE_NUMA_STRATEGY,
    keys.NODE_NUMA_POLICY,
    keys.NODE_NUMA_ALIGNMENT,
    keys.CRANE_AWARENESS,
)
_ANNOTATIONS: Final = (keys.RESERVATION, keys.SYSTEM_QOS, keys.AMPLIFICATION)


class SavedSettings(msgspec.Struct, frozen=True):
    """Content of the settings file: the policy of the last run, "" before the first, and the overrides.

    Overrides are the Node's labels and annotations that are settings, each with its last valid value.
    """

    policy: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    version: int = 1


NOTHING_SAVED: Final = SavedSettings("", {}, {})


class EffectiveSettings:
    """The settings in effect on one node: `config`, made from the agent's configuration and the overrides."""

    def __init__(self, profile: NodeConfig, machine: Machine, saved: SavedSettings) -> None:
        """Raises NodeConfigError for a profile that is invalid on this machine."""
        self._profile = profile
        self._reported: set[str] = set()
        try:
            self.config = _effective(profile, machine, saved.labels, saved.annotations)
            self.to_save = SavedSettings(self.config.policy, saved.labels, saved.annotations)
        except NodeConfigError:
            self.config = _effective(profile, machine, {}, {})
            self.to_save = SavedSettings(self.config.policy, {}, {})
        self.is_saved = saved == self.to_save

    def update(
        self, machine: Machine, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> list[str]:
        """Apply the Node's labels and annotations; return the faults that the last call did not return."""
        faults: list[str] = []
        labels = dict(_valid(_LABELS, labels, self.to_save.labels, faults))
        annotations = dict(_valid(_ANNOTATIONS, annotations, self.to_save.annotations, faults))
        try:
            config = _effective(self._profile, machine, labels, annotations)
        except NodeConfigError as error:
            faults.append(f"labels and annotations of the node, together with its settings: {error}")
        else:
            before, self.to_save = self.to_save, SavedSettings(config.policy, labels, annotations)
            self.is_saved = self.is_saved and before == self.to_save
            self.config = config
        new_faults = [fault for fault in faults if fault not in self._reported]
        self._reported = set(faults)
        return new_faults


def _valid(
    names: tuple[str, ...], current: Mapping[str, str], last: Mapping[str, str], faults: list[str]
) -> Iterator[tuple[str, str]]:
    """Yield every valid setting; of an invalid one its last valid value, and note its faults."""
    for key in names:
        if key in current and (problems := list(_faults(current, key))):
            faults.extend(problems)
            if key in last:
                yield key, last[key]
        elif key in current:
            yield key, current[key]


def _faults(current: Mapping[str, str], key: str) -> Iterator[str]:
    single = {key: current[key]}
    settings = node_labels.node_labels(single, {}) if key in _LABELS else node_labels.node_labels({}, single)
    return map(str, settings.faults)


def _effective(
    profile: NodeConfig, machine: Machine, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> NodeConfig:
    """Return the profile with the overrides applied. Raises NodeConfigError."""
    settings = node_labels.node_labels(labels, annotations)
    topology = usable_topology(machine)
    pools = node_labels.pool_options(settings, KubeletSettings(), profile.pools, topology)
    config = replace(profile, policy=settings.policy or profile.policy, pools=pools)
    check(config, topology, machine)
    return config


def load_settings(path: Path) -> tuple[SavedSettings, str]:
    """Read the settings file; return what is wrong with one that is damaged or of another version.

    Such a file counts as empty, but for its version. Raises OSError for a file that cannot be read.
    """
    try:
        saved = msgspec.json.decode(input_files.read(path, regular=True), type=SavedSettings)
        if saved.version == NOTHING_SAVED.version:
            return saved, ""
        what = f"version {saved.version}; this corelane reads and writes version {NOTHING_SAVED.version}"
        empty = msgspec.structs.replace(NOTHING_SAVED, version=saved.version)
        return empty, f"{path}: settings file of {what}: not replaced, settings read from the Node"
    except FileNotFoundError:
        return NOTHING_SAVED, ""
    except (ValueError, RecursionError) as error:
        return NOTHING_SAVED, f"{path}: invalid settings file ({error}), read again from the Node"


def save_settings(path: Path, settings: SavedSettings, *, durable: bool = True) -> None:
    """Replace the settings file; `durable` as of `files.write_atomic`. Raises OSError."""
    text = msgspec.json.format(msgspec.json.encode(settings), indent=2)
    files.write_atomic(path, text + b"\n", mode=0o600, durable=durable)


@dataclass(frozen=True, slots=True)
class LoadedLedger:
    """A ledger to start with; `problems` are entries that do not fit the machine or the settings any more.

    Where the file was corrupt, `damage` says why, and `backup` is its new name. Where it is of another
    version, `foreign` says so: it stays as it is, and must not be replaced.
    """

    ledger: NodeState
    problems: tuple[str, ...] = ()
    damage: str = ""
    backup: Path | None = None
    foreign: str = ""


def load_ledger(path: Path, machine: Machine, config: NodeConfig) -> LoadedLedger:
    """Read the ledger and fit it to machine and settings; without a file it is empty.

    A corrupt file, or a directory in its place, is renamed, and the ledger is empty: it is rebuilt from the
    running containers. It is empty for a file of another version, too, which is never renamed. Raises
    OSError for a file that cannot be read, NodeConfigError for settings that are invalid on the machine.
    """
    try:
        data = input_files.read(path, input_files.OBJECTS_BYTES, regular=True)
    except FileNotFoundError:
        return LoadedLedger(new(machine, config))
    except IsADirectoryError:
        damage = f"ledger {path} is a directory"
        return LoadedLedger(new(machine, config), damage=damage, backup=_rename_damaged(path))
    try:
        ledger = codec.decode(data, machine, config)
    except codec.LedgerVersionError as error:
        return LoadedLedger(new(machine, config), foreign=str(error))
    except LedgerError as error:
        return LoadedLedger(new(machine, config), damage=str(error), backup=_rename_damaged(path))
    ledger, problems = rebase(ledger, machine, config)
    return LoadedLedger(ledger, tuple(problem.text for problem in problems))


def excess_requests(ledger: NodeState) -> str:
    """Return a sentence about pods that request more CPU than is allocatable; "" where all fit."""
    if ledger.requested <= ledger.allocatable:
        return ""
    return (
        f"pods of the ledger request {ledger.requested}m CPU, {ledger.allocatable}m are allocatable: these "
        "pods are kept, and new pods are rejected until requests fit again"
    )


def _rename_damaged(path: Path) -> Path:
    """Rename to the first free name of `ledger.json.damaged-1`, `-2` and so on."""
    names = (path.with_name(f"{path.name}.damaged-{number}") for number in count(1))
    backup = next(name for name in names if not name.exists())
    path.rename(backup)
    return backup


class StateFiles:
    """The two files of one agent: the ledger as it was read, and the settings in effect."""

    def __init__(
        self,
        directory: Path,
        profile: NodeConfig,
        machine: Machine,
        reporter: AgentReporter,
        *,
        durable: bool = True,
    ) -> None:
        """Read both files and fit them to the machine. Raises OSError, NodeConfigError.

        Files that are not `durable` survive the process, but not a crash of the machine: enough where no
        container does either.
        """
        self._profile = profile
        self._machine = machine
        self._reporter = reporter
        self._durable = durable
        self._ledger_path = directory / LEDGER_FILE
        self._changed_file = ChangedFile(self._ledger_path)
        self._settings_path = directory / SETTINGS_FILE
        self.read()

    def read(self) -> None:
        """Read both files, before anything was saved. Raises OSError, NodeConfigError."""
        path = self._settings_path
        try:
            saved, self.settings_fault = load_settings(path)
        except IsADirectoryError:
            what = f"a directory, renamed to {_rename_damaged(path)}, settings read again from the Node"
            saved, self.settings_fault = NOTHING_SAVED, f"{path}: {what}"
        self._keeps_settings = saved.version != NOTHING_SAVED.version
        self._retry_settings_at = 0.0
        self._policy_before = saved.policy
        self.settings = EffectiveSettings(self._profile, self._machine, saved)
        self._loaded = load_ledger(self._ledger_path, self._machine, self.settings.config)
        self.ledger = self._loaded.ledger

    def remove_temporary(self) -> None:
        """Remove files that killed agents left half written; call it under the state directory's lock."""
        for path in (self._ledger_path, self._settings_path):
            files.remove_temporary(path)

    def startup_events(self) -> Iterator[PublishEvent]:
        """Report a corrupt ledger, and what changed since the last run; yield the Node's events about it."""
        damage, backup = self._loaded.damage, self._loaded.backup
        if backup is not None:
            self._reporter.ledger_lost(str(self._ledger_path), str(backup), damage)
            text = f"{damage}; file renamed to {backup} (corrupt), ledger rebuilt from the running containers"
            yield PublishEvent("", "LedgerDamaged", text, True)
        if self._loaded.foreign:
            yield PublishEvent("", "LedgerUnwritable", f"{self._ledger_path}: {self._loaded.foreign}", True)
        for problem in self._loaded.problems:
            self._reporter.ledger_changed(problem)
            yield PublishEvent("", "LedgerChanged", problem, True)
        before, now = self._policy_before, self.settings.config.policy
        if before not in ("", now):
            text = f"CPU policy changed from {before} to {now}; running containers keep their CPUs"
            yield PublishEvent("", "PolicyChanged", text, False)

    async def save_ledger(self, ledger: NodeState) -> str:
        """Replace the ledger's file; return why that failed, or "". A file of another version stays."""
        if self._loaded.foreign:
            return f"{self._ledger_path}: {self._loaded.foreign}"
        try:
            if self._durable:
                await _to_completion(save_ledger, self._ledger_path, ledger)
            else:
                self._changed_file.save(ledger)
        except OSError as error:
            return f"{self._ledger_path}: {error.strerror or error}"
        return ""

    def report_fault(self, fault: str) -> None:
        """Report why the ledger cannot be written, for another reason than before."""
        path = str(self._ledger_path)
        self._reporter.checkpoint_failed(path, fault.removeprefix(f"{path}: "))

    async def save_settings(self) -> None:
        """Save the settings in effect; where that fails, the next call after some seconds tries again."""
        if self.settings.is_saved or self._keeps_settings or time.monotonic() < self._retry_settings_at:
            return
        settings = self.settings.to_save
        try:
            await _to_completion(partial(save_settings, durable=self._durable), self._settings_path, settings)
        except OSError as error:
            self._retry_settings_at = time.monotonic() + _RETRY_SETTINGS
            self._reporter.checkpoint_failed(str(self._settings_path), str(error))
            self.settings_fault = f"{self._settings_path}: {error.strerror or error}: settings not saved"
        else:
            self.settings_fault = ""
            self.settings.is_saved = self.settings.to_save == settings


async def _to_completion(work: Callable[..., None], *args: Any) -> None:
    """Run in a thread; a cancellation waits for its end, so that nothing is written after the agent ended."""
    task = asyncio.ensure_future(asyncio.to_thread(work, *args))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
