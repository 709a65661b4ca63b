"""`corelane` as a process that kills itself at a step.

As a program: python -m support.killed_agent LOG GROUPS AT ARGUMENTS…

A step is what outlives the process: a sync or rename of the ledger's file, a write to a cgroup, a call that
changes the runtime's record, an answer over NRI, a write to the API server; and a list of the containers. AT
is `KIND:SIDE:NUMBER`, such as `cgroup:before:3`, or `never`. LOG gets a line of JSON before and after every
step: with the CPUs in effect for every container below GROUPS, a cgroup v1 or v2 directory, and the exclusive
CPUs of the ledger on disk.
"""

import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

_EFFECTIVE = ("cpuset.effective_cpus", "cpuset.cpus.effective")


def readings(groups: Path) -> dict[str, str]:
    """The CPUs in effect by the name of each cgroup with a process; one that goes meanwhile is left out."""
    found = {}
    for pod in (*groups.glob("kubepods/pod*"), *groups.glob("kubepods/*/pod*")):
        for group in pod.iterdir():
            if not group.is_dir():
                continue
            try:
                name = next(name for name in _EFFECTIVE if (group / name).exists())
                cpus = (group / name).read_text().strip()
                if (group / "cgroup.procs").read_text():
                    found[group.name] = cpus
            except (OSError, StopIteration):
                continue
    return found


def exclusive_cpus(ledger: Path) -> dict[str, str]:
    """`UID/CONTAINER` to the exclusive CPUs that the ledger on disk has for it."""
    try:
        entries = json.loads(ledger.read_bytes())["ledger"]["entries"]
    except FileNotFoundError:
        return {}
    owners = (entry for entry in entries if entry["sharing"] in ("alone", "lent") and entry["cpus"])
    return {f"{entry['uid']}/{entry['container']}": entry["cpus"] for entry in owners}


def snapshot(groups: Path, ledger: Path) -> dict[str, Any]:
    """What kernel and disk have now: read twice, so that what both show was so in between."""
    shot = {"at": time.monotonic(), "ledger": exclusive_cpus(ledger)}
    shot |= {"first": readings(groups), "second": readings(groups)}
    return shot | {"done": time.monotonic()}


class Steps:
    """Counts and logs steps, and kills the process at one of them."""

    def __init__(self, log: Path, groups: Path, ledger: Path, at: str) -> None:
        self._file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._groups, self._ledger = groups, ledger
        kind, side, number = at.split(":") if at != "never" else ("", "", "0")
        self._at = kind, side, int(number)
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def note(self, kind: str, side: str, about: str) -> None:
        with self._lock:  # a step of another thread is not to pass while this one ends the process
            self._counts[kind, side] += 1
            last = (kind, side, self._counts[kind, side]) == self._at
            line = {"step": f"{kind}:{side}", "about": about, "killed": last, "pid": os.getpid()}
            line |= snapshot(self._groups, self._ledger)
            os.write(self._file, json.dumps(line).encode() + b"\n")
            if last:
                os.kill(os.getpid(), signal.SIGKILL)

    def call(self, owner: Any, name: str, kind: str, about: Callable[..., str | None]) -> None:
        """Make a function a step where `about`, of its arguments, is not None."""
        function = getattr(owner, name)

        def stepped(*arguments: Any, **named: Any) -> Any:
            what = about(*arguments, **named)
            if what is None:
                return function(*arguments, **named)
            self.note(kind, "before", what)
            value = function(*arguments, **named)
            self.note(kind, "after", what)
            return value

        setattr(owner, name, stepped)

    def coroutine(self, owner: Any, name: str, kind: str, about: Callable[..., str]) -> None:
        """As `call`, for a coroutine function."""
        function = getattr(owner, name)

        async def stepped(*arguments: Any, **named: Any) -> Any:
            what = about(*arguments, **named)
            self.note(kind, "before", what)
            value = await function(*arguments, **named)
            self.note(kind, "after", what)
            return value

        setattr(owner, name, stepped)


def instrument(steps: Steps) -> None:
    """Make steps of the functions through which the agent changes what outlives it."""
    from corelane.kernel import cgroupfs
    from corelane.kube.client import KubeClient
    from corelane.runtime.cri.client import CRIClient
    from corelane.runtime.nri.connection import Session

    def file_of(descriptor: int) -> str | None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        return str(path) if "ledger.json" in path.name or path.is_dir() else None

    def renamed(_source: Any, target: Any) -> str | None:
        return str(target) if str(target).endswith("/ledger.json") else None

    steps.call(os, "fsync", "ledger-sync", file_of)
    steps.call(os, "replace", "ledger-rename", renamed)
    steps.call(cgroupfs._Kernel, "write", "cgroup", lambda _, path, text: f"{path} {text}")
    steps.coroutine(CRIClient, "update", "cri", lambda _, ident, resources: f"{ident} {resources}")
    steps.coroutine(CRIClient, "containers", "list", lambda _: "containers")
    for name in ("create", "patch"):
        steps.coroutine(KubeClient, name, "publish", lambda *arguments, **_: repr(arguments[1:])[:200])
    send = Session._send

    def sent(self: Session, question: Any, answer: Any) -> Any:
        steps.note("nri", "before", f"{type(question).__name__} {answer}")
        outcome = send(self, question, answer)
        self._flush()  # what is sent has left the process
        steps.note("nri", "after", f"{type(question).__name__} {answer}")
        return outcome

    Session._send = sent


def main() -> None:
    log, groups, at, *arguments = sys.argv[1:]
    directory = next(a.partition("=")[2] for a in arguments if a.startswith("--state-dir="))
    instrument(Steps(Path(log), Path(groups), Path(directory, "ledger.json"), at))
    sys.argv[1:] = arguments
    from corelane.cli import main as corelane

    corelane(prog_name="corelane")


if __name__ == "__main__":
    main()
