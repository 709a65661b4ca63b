"""`corelane down`: ends what a `corelane up` left running, with or without its server and data directory."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corelane.app import local_instance
from corelane.embedded.containers import container_search, instances
from corelane.embedded.containers.instances import InstanceContainer
from corelane.embedded.containers.records import is_instance_name
from corelane.embedded.up import datadir
from corelane.embedded.up.datadir import Purged, purge
from corelane.kernel import ownership, proc

_STOP_SECONDS: Final = 60.0


class DownError(Exception):
    """The instance cannot be ended; the message has its name, the cause and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOptions:
    """Which instances to end, and how. `instance` names one by its cgroups instead of a data directory."""

    data_dir: Path
    instance: str | None = None
    everything: bool = False
    purge: bool = False
    grace_seconds: float = 30.0


@dataclass(slots=True)
class DownReport:
    """What was done: processes of `corelane up` stopped, containers ended and left, and what else runs."""

    options: DownOptions
    stopped: list[int] = field(default_factory=list)
    ended: list[InstanceContainer] = field(default_factory=list)
    left: list[InstanceContainer] = field(default_factory=list)
    others: list[InstanceContainer] = field(default_factory=list)
    cgroups: list[str] = field(default_factory=list)
    directories: list[Purged] = field(default_factory=list)
    """Data directories that were to be purged."""

    @property
    def complete(self) -> bool:
        """Whether no process is left, and no file that was to be removed."""
        return not self.left and all(
            directory.is_data_dir and not directory.failed for directory in self.directories
        )

    def plain(self) -> dict[str, Any]:
        """Return the report with stable keys, for `-o json`."""
        return {
            "dataDir": str(self.options.data_dir),
            "stopped": self.stopped,
            "ended": [_plain(one) for one in self.ended],
            "left": [_plain(one) for one in self.left],
            "others": [_plain(one) for one in self.others],
            "cgroups": self.cgroups,
            "purged": [str(purged.path) for purged in self.directories if purged.is_data_dir],
            "unpurged": [
                str(path)
                for purged in self.directories
                for path in ([*purged.foreign, *purged.failed] if purged.is_data_dir else [purged.path])
            ],
        }

    def lines(self) -> list[str]:
        """Return the report for people, a line each."""
        lines = [f"corelane up (process {pid}) stopped" for pid in self.stopped]
        lines += [f"ended {one.title} (process {one.main.pid})" for one in self.ended]
        lines += [f"cgroup {path} removed" for path in self.cgroups]
        lines += [line for one in self.directories for line in _purge_lines(one)]
        if not (self.ended or self.left or self.stopped):
            lines.append(f"nothing runs for {self.options.instance or self.options.data_dir}")
        lines += map(_left_line, self.left)
        if self.options.purge and self.left:
            lines.append("nothing was purged: the records of processes that are left are still theirs")
        for owner in sorted({one.owner for one in self.others}):
            theirs = [one for one in self.others if one.owner == owner]
            claimed = "" if theirs[0].user in (0, os.geteuid()) else " (by their own account)"
            lines.append(
                f"not touched: {containers(len(theirs))} of {owner}{claimed}; to end: "
                f"{how(self.others, owner)}"
            )
        return lines


def _left_line(container: InstanceContainer) -> str:
    if container.main == instances.UNSEEN:
        return (
            f"still running: {container.title} of {container.owner}: its processes are in another PID or "
            "user namespace, or cannot be read; call corelane down there"
        )
    pid = container.main.pid
    if container.ended:
        return (
            f"still there: the shim of {container.title}, process {pid}, with its record {container.state}/"
            f"containers/{container.id}: it is stopped or hangs, and did not record that its container "
            f"ended; to end: kill -CONT {pid}, or kill -9 {pid}, and call corelane down again"
        )
    return (
        f"still running: {container.title}, process {pid}: it belongs to another user, or SIGKILL did not "
        "end it"
    )


def containers(count: int) -> str:
    """Return "1 container", "2 containers"."""
    return f"{count} container{'s' * (count != 1)}"


def how(running: Sequence[InstanceContainer], owner: str) -> str:
    """Return the command that ends the containers of an owner."""
    container = next(container for container in running if container.owner == owner)
    if container.user != os.geteuid():
        return "corelane down --all, as that user"
    if container.main == instances.UNSEEN:
        return f"corelane down --instance {container.instance}, in the PID namespace of its processes"
    if container.data_dir:
        return f"corelane down --data-dir {shlex.quote(str(container.data_dir))}"
    return f"corelane down --instance {container.instance}" if container.instance else "corelane down --all"


def _purge_lines(purged: Purged) -> list[str]:
    if not purged.is_data_dir:
        return [f"{purged.path}: nothing removed: it has no file of a data directory, such as apiserver.db"]
    return [
        f"corelane's files in {purged.path} removed",
        *(f"not removed, as corelane did not write it: {path}" for path in purged.foreign),
        *(f"not removed: {path}: {cause}" for path, cause in purged.failed.items()),
    ]


def command_for(data_dir: Path) -> str:
    """Return the command that ends what a data directory's `up` left running."""
    default = data_dir == local_instance.data_dir()
    return "corelane down" if default else f"corelane down --data-dir {shlex.quote(str(data_dir))}"


def _plain(container: InstanceContainer) -> dict[str, Any]:
    return {
        "id": container.id,
        "namespace": container.namespace,
        "pod": container.pod,
        "podUID": container.uid,
        "container": container.name,
        "pid": container.main.pid,
        "instance": container.instance,
        "dataDir": str(container.data_dir or ""),
        "cgroup": container.group,
    }


def down(options: DownOptions, confirm: Callable[[Sequence[InstanceContainer]], bool]) -> DownReport:
    """End the named instance; with `everything` others too, if `confirm` agrees to their containers.

    Only instances of our user, whose processes can be seen from here: what another user's process or file
    says is not acted upon. A running `corelane up` is stopped first. Raises DownError if it does not stop,
    for a directory of another user, or for an `instance` that cannot be a name.
    """
    if options.instance is not None and not is_instance_name(options.instance):
        raise DownError(
            f"--instance {options.instance!r}: not the name of an instance, which is that of a cgroup below "
            "corelane/, such as 5d14a811"
        )
    if not options.instance:
        _check_own(options.data_dir)
    report = DownReport(options)
    groups = instances.groups_here()
    names = {options.instance} if options.instance else instance_names(options.data_dir)
    ids = set() if options.instance else recorded_ids(options.data_dir)
    chosen, others = select(instances.running(groups), options, names, ids)
    agreed_names: set[str] = set()
    agreeable = [one for one in others if one.is_own]
    if options.everything and agreeable and confirm(agreeable):
        chosen, agreed_names = [*chosen, *agreeable], {one.instance for one in agreeable if one.instance}
    directories = {one.data_dir for one in chosen if one.data_dir}
    directories |= set() if options.instance else {options.data_dir}
    for directory in sorted(directories):
        if (pid := stop_up(directory)) is not None:
            report.stopped.append(pid)
    agreed = {one.id for one in chosen}
    found = instances.running(groups)  # once more: until now an `up` may have started others
    agreed |= {one.id for one in select(found, options, names, ids)[0]}
    chosen = [
        one
        for one in found
        if one.is_own and (one.id in agreed or one.instance in agreed_names or one.data_dir in directories)
    ]
    hidden = [one for one in found if one.main == instances.UNSEEN and one.instance in names]
    report.others = [one for one in found if one not in chosen and one not in hidden]
    report.left = instances.end(chosen, groups, options.grace_seconds)
    report.ended = [one for one in chosen if one not in report.left]
    report.left += instances.left_shims(
        lambda one: one.id in agreed or one.instance in agreed_names or one.data_dir in directories
    )
    if groups is not None:
        ended = names | {one.instance for one in chosen if one.instance}
        in_use = {one.instance for one in report.others}
        report.cgroups = instances.remove_groups(groups, ended - in_use)
        hidden = [one for one in hidden if groups.exists(one.group)]  # the kernel keeps those in use
    report.left += _unreadable(directories) or hidden
    if options.purge and not report.left:
        there = [one for one in sorted(directories) if one.is_dir() and any(one.iterdir())]
        report.directories = list(map(purge, there))
    return report


def select(
    running: Sequence[InstanceContainer], options: DownOptions, names: set[str], ids: Collection[str] = ()
) -> tuple[list[InstanceContainer], list[InstanceContainer]]:
    """Return the containers of the instance that the options name, and those of others.

    `ids` are those of the directory's records. They and `names` count for containers whose shims name a
    directory that is missing, as it was moved, or none; not for those of another directory, of which this one
    is a copy.
    """
    here = options.data_dir.resolve()

    def is_chosen(container: InstanceContainer) -> bool:
        if not container.is_own:
            return False
        if options.instance:
            return container.instance in names
        if container.data_dir is not None and (
            container.data_dir.exists() or container.data_dir == options.data_dir
        ):
            return container.data_dir.resolve() == here
        return container.instance in names or container.id in ids

    return [container for container in running if is_chosen(container)], [
        container for container in running if not is_chosen(container)
    ]


def _unreadable(directories: Collection[Path]) -> list[InstanceContainer]:
    """Return the containers with a record in data directories whose processes cannot be read from here."""
    places = (path for directory in directories for path in directory.glob("nodes/*/containers/containers"))
    records = (record for place in places for record in container_search.unreadable(place))
    return [InstanceContainer(one.name, instances.UNSEEN, state=one.parent.parent) for one in records]


def _check_own(data_dir: Path) -> None:
    """Raise DownError if a data directory belongs to another user, or that can be changed by one."""
    try:
        user = data_dir.stat().st_uid
        if user != os.geteuid():
            raise DownError(f"{data_dir}: belongs to user {user}; call corelane down as that user")
        ownership.check(data_dir)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DownError(datadir.text(error)) from error


def instance_names(data_dir: Path) -> set[str]:
    """Return the names of a data directory's instances, as far as they can be read."""
    names = set()
    for path in data_dir.glob("nodes/*/containers/instance"):
        try:
            names.add(path.read_text().strip())
        except (OSError, UnicodeDecodeError):
            continue
    return names - {""}


def recorded_ids(data_dir: Path) -> set[str]:
    """Return the ids of the containers that have a record in a data directory."""
    return {path.name for path in data_dir.glob("nodes/*/containers/containers/*")}


def stop_up(data_dir: Path) -> int | None:
    """Stop the `corelane up` that uses a data directory; return its process id, None without one.

    Raises DownError if it goes on.
    """
    try:
        process = datadir.holder(data_dir)
    except datadir.DataDirError as error:
        raise DownError(str(error)) from error
    if process is None:
        return None
    holder = process.pid
    try:
        proc.send(process, signal.SIGTERM)
    except PermissionError as error:
        raise DownError(f"corelane up (process {holder}) belongs to another user; stop it first") from error
    deadline = time.monotonic() + _STOP_SECONDS
    while proc.is_alive(process):
        if time.monotonic() > deadline:
            raise DownError(
                f"corelane up (process {holder}) did not stop within {_STOP_SECONDS:.0f} s; "
                f"end it with kill -9 {holder}, and call corelane down again"
            )
        time.sleep(0.05)
    return holder
