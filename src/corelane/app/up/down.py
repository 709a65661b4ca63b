"""`corelane down`: ends what a `corelane up` left running, with or without its server and data directory."""

from __future__ import annotations

import re
import shutil
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corelane.app.up import datadir
from corelane.app.up.detach import LOG_NAME
from corelane.kernel import proc
from corelane.runtime import instances
from corelane.runtime.instances import InstanceContainer

_STOP_SECONDS: Final = 60.0
_OWN_FILES: Final = re.compile(
    r"lock|kubeconfig|scheduler\.json|server\.pem|ca\.crt|apiserver\.(lock|db.*)|nodes|\.(kubeconfig|apiserver"
    r"|scheduler|server|ca)\..*\.tmp|" + re.escape(LOG_NAME) + r"(\.1)?"
)
"""What `corelane up` writes into a data directory; other files are not touched."""


class DownError(Exception):
    """The instance cannot be ended; the message has its name, the cause and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOptions:
    """Which instances to end, and how. `instance` names one by its cgroups instead of a data directory."""

    data_dir: Path
    instance: str = ""
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
    purged: list[Path] = field(default_factory=list)
    unpurged: list[Path] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """Return the report with stable keys, for `-o json`."""
        return {
            "dataDir": str(self.options.data_dir),
            "stopped": self.stopped,
            "ended": [_plain(one) for one in self.ended],
            "left": [_plain(one) for one in self.left],
            "others": [_plain(one) for one in self.others],
            "cgroups": self.cgroups,
            "purged": list(map(str, self.purged)),
            "unpurged": list(map(str, self.unpurged)),
        }

    def lines(self) -> list[str]:
        """Return the report for people, a line each."""
        found = [f"corelane up (process {pid}) stopped" for pid in self.stopped]
        found += [f"ended {one.title} (process {one.main.pid})" for one in self.ended]
        found += [f"cgroup {path} removed" for path in self.cgroups]
        found += [f"corelane's files in {path} removed" for path in self.purged]
        found += [f"not removed, as corelane did not write it: {path}" for path in self.unpurged]
        if not (self.ended or self.left or self.stopped):
            found.append(f"nothing runs for {self.options.instance or self.options.data_dir}")
        found += [
            f"still running: {one.title}, process {one.main.pid}: it belongs to another user, or SIGKILL did "
            "not end it"
            for one in self.left
        ]
        for owner in sorted({one.owner for one in self.others}):
            count = sum(one.owner == owner for one in self.others)
            found.append(f"not touched: {containers(count)} of {owner}; to end: {how(self.others, owner)}")
        return found


def containers(count: int) -> str:
    """Return "1 container", "2 containers"."""
    return f"{count} container{'s' * (count != 1)}"


def how(running: Sequence[InstanceContainer], owner: str) -> str:
    """Return the command that ends the containers of an owner."""
    one = next(one for one in running if one.owner == owner)
    if one.data_dir:
        return f"corelane down --data-dir {one.data_dir}"
    return f"corelane down --instance {one.instance}" if one.instance else "corelane down --all"


def command_for(data_dir: Path) -> str:
    """Return the command that ends what a data directory's `up` left running."""
    return "corelane down" if data_dir == datadir.default() else f"corelane down --data-dir {data_dir}"


def _plain(one: InstanceContainer) -> dict[str, Any]:
    return {
        "id": one.id,
        "namespace": one.namespace,
        "pod": one.pod,
        "podUID": one.uid,
        "container": one.name,
        "pid": one.main.pid,
        "instance": one.instance,
        "dataDir": str(one.data_dir or ""),
        "cgroup": one.group,
    }


def down(options: DownOptions, confirm: Callable[[Sequence[InstanceContainer]], bool]) -> DownReport:
    """End the named instance; with `everything` others too, if `confirm` agrees to their containers.

    A running `corelane up` is stopped first. Raises DownError if it does not stop, or still uses a directory
    that is to be purged.
    """
    report = DownReport(options)
    groups = instances.groups_here()
    names = {options.instance} if options.instance else instance_names(options.data_dir)
    chosen, others = select(instances.running(groups), options, names)
    if options.everything and others and confirm(others):
        chosen, names = [*chosen, *others], names | {one.instance for one in others if one.instance}
    directories = {one.data_dir for one in chosen if one.data_dir}
    directories |= set() if options.instance else {options.data_dir}
    for directory in sorted(directories):
        if (pid := stop_up(directory)) is not None:
            report.stopped.append(pid)
    agreed = {one.id for one in chosen}
    found = instances.running(groups)  # once more: until now an `up` may have started others
    chosen = [
        one for one in found if one.instance in names or one.data_dir in directories or one.id in agreed
    ]
    report.others = [one for one in found if one not in chosen]
    report.left = instances.end(chosen, groups, options.grace_seconds)
    report.ended = [one for one in chosen if one not in report.left]
    instances.shims_ended(report.ended)
    if groups is not None:
        ended = names | {one.instance for one in chosen if one.instance}
        report.cgroups = instances.remove_groups(groups, ended)
    if options.purge and not report.left:
        for directory in sorted(directories):
            _purge(directory, report)
    return report


def select(
    running: Sequence[InstanceContainer], options: DownOptions, names: set[str]
) -> tuple[list[InstanceContainer], list[InstanceContainer]]:
    """Return the containers of the instance that the options name, and those of others."""

    def is_chosen(one: InstanceContainer) -> bool:
        return one.instance in names or (not options.instance and one.data_dir == options.data_dir)

    return [one for one in running if is_chosen(one)], [one for one in running if not is_chosen(one)]


def instance_names(data_dir: Path) -> set[str]:
    """Return the names of a data directory's instances, as far as they can be read."""
    found = set()
    for path in data_dir.glob("nodes/*/containers/instance"):
        try:
            found.add(path.read_text().strip())
        except (OSError, UnicodeDecodeError):
            continue
    return found - {""}


def stop_up(data_dir: Path) -> int | None:
    """Stop the `corelane up` that uses a data directory; return its process id, None without one.

    Raises DownError if it goes on.
    """
    holder = datadir.holder(data_dir)
    process = proc.identity(holder) if holder else None
    if process is None:
        return None
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


def _purge(directory: Path, report: DownReport) -> None:
    """Remove what corelane wrote into a data directory, and the directory once it is empty."""
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        if not _OWN_FILES.fullmatch(path.name):
            report.unpurged.append(path)
        elif path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    if not any(directory.iterdir()):
        directory.rmdir()
    report.purged.append(directory)
