"""`corelane up`: the cluster of this machine, until a signal ends it; and `--detach`, in the background."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from corelane import structured_log
from corelane.embedded.up import datadir, down, heap
from corelane.embedded.up.cluster import Cluster
from corelane.embedded.up.options import UpOptions
from corelane.scheduler.daemon import garbage
from corelane.supervise import completes, until_signal

_READY_FD: Final = "CORELANE_READY_FD"
"""Environment variable of the background process: its parent, and the descriptor on which it reports that it
is ready."""
_LOG_FILE: Final = "CORELANE_BACKGROUND_LOG"
"""Environment variable with the path of the background process's log."""
_CRASH: Final = "Fatal Python error: "
_TRACE: Final = ("Thread 0x", "Current thread", "  ", "Extension modules: ")
"""How the lines of a crash's trace begin, after the first one."""
_TRACE_BYTES: Final = 64 << 10
_MOST_TITLES: Final = 10


def start_in_background(arguments: Sequence[str], data_dir: Path, say: Callable[[str], None]) -> int:
    """Start `corelane` with these arguments in a session of its own; return 0 once it serves.

    That process has the same options, from arguments and environment, and is `in_background`: there,
    --detach has no effect, and no module of the current directory, which may be another user's, is loaded
    (-P). If it ends before, print what it printed, and return its exit status.
    Raises DataDirError, OSError.
    """
    missing = [directory for directory in (data_dir, *data_dir.parents) if not directory.exists()]
    datadir.make(data_dir)
    path = (data_dir / datadir.LOG_NAME).resolve()
    crash = last_crash(path)
    datadir.make_log_room(path)
    reader, writer = os.pipe()
    with path.open("a+b") as log, os.fdopen(reader) as ready:
        offset = log.tell()
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "corelane", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(writer,),
                env={**os.environ, _READY_FD: f"{os.getpid()}:{writer}", _LOG_FILE: str(path)},
                start_new_session=True,
            )
        finally:
            os.close(writer)
        try:
            welcome = ready.read()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            _remove(path, missing)
            raise
        if not welcome:
            status = process.wait()
            log.seek(offset)
            printed = log.read().decode(errors="replace").rstrip()
            say(printed or _without_output(status, path, log.fileno()))
            _remove(path, missing)
            return status or 1
    note = f"\n  note: the run before crashed ({crash}); its trace is in the log" if crash else ""
    say(f"{welcome}\n  pid {process.pid}, log {path}{note}")
    return 0


def _remove(log: Path, made: Sequence[Path]) -> None:
    """Remove the directories made for a run that did not start, if nothing but its log is there."""
    if made:
        log.unlink(missing_ok=True)
    for directory in made:
        with suppress(OSError):  # gone already, or another's file is there: then its parents stay, too
            directory.rmdir()


def last_crash(log: Path) -> str:
    """Return what crashed the run that wrote the end of a log; "" where it ended otherwise."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TRACE_BYTES))
        lines = [line for line in file.read().decode(errors="replace").splitlines() if line]
    while lines and lines[-1].startswith(_TRACE):
        lines.pop()
    return lines[-1].removeprefix(_CRASH) if lines and lines[-1].startswith(_CRASH) else ""


def _without_output(status: int, path: Path, descriptor: int) -> str:
    """Return the message for a start that failed, with a log that has no word of it."""
    free = os.fstatvfs(descriptor).f_bavail
    cause = "" if free else f"; no space is left on the file system of {path}: free some"
    return f"Error: corelane up ended before it was ready, with status {status} and without output{cause}"


def in_background() -> bool:
    """Whether `main` started this process, which did not report yet."""
    return _report_pipe() is not None


def _report_pipe() -> int | None:
    """Return the descriptor on which to report; None where the variable is not from `main` for us."""
    parent, _, descriptor = os.environ.get(_READY_FD, "").partition(":")
    return int(descriptor) if parent == str(os.getppid()) and descriptor.isdecimal() else None


def log_path() -> Path | None:
    """Return the log to which `main` sent stdout and stderr of this process; None if it did not start it."""
    path = os.environ.pop(_LOG_FILE, "")
    if not in_background():
        os.environ.pop(_READY_FD, None)
        return None
    return Path(path) if path else None


def report_ready(welcome: str) -> None:
    """Report to `main`, if this process was started by it, that it serves."""
    descriptor = _report_pipe()
    os.environ.pop(_READY_FD, None)
    if descriptor is not None:
        with os.fdopen(descriptor, "w") as ready:
            ready.write(welcome)


def main(
    options: UpOptions,
    *,
    stop_pods: bool,
    say: Callable[[str], None],
    log_format: structured_log.Format = "auto",
) -> int:
    """Run until SIGINT or SIGTERM. Raises the error that prevented the start, or PartEnded.

    `say` raises nothing but BrokenPipeError: a log on a full disk must break off no start, no stop.
    """
    heap.share_one_arena()
    heap.bound_tls_buffers()
    path = log_path()
    handler = datadir.BoundedLog(path) if path else None
    structured_log.configure(as_json=structured_log.AS_JSON[log_format], handler=handler)
    return asyncio.run(_run(options, stop_pods=stop_pods, say=say))


async def _run(options: UpOptions, *, stop_pods: bool, say: Callable[[str], None]) -> int:
    def note(text: str) -> None:
        with suppress(BrokenPipeError):  # the reader of the log may have ended first
            say(text)

    with until_signal() as stop:
        garbage.collect_young()
        cluster = Cluster(options, say=say)
        if not await completes(cluster.start(), unless=stop):
            note("stopped before it was ready")
            return 130 if stop.number == signal.SIGINT else 0
        lost, interrupted, keeping = "", False, asyncio.ensure_future(heap.keep_small())
        try:
            welcome = _welcome(cluster, stop_pods=stop_pods)
            say(welcome)
            garbage.settle()
            heap.return_freed()
            report_ready(welcome)
            lost = await _until_stopped(cluster, stop)
            if lost:
                note(lost)
        finally:
            keeping.cancel()
            note("stopping; the pods' processes end too" if stop_pods else "stopping")
            interrupted = await _stop(cluster, stop_pods=stop_pods)
            note(_farewell(cluster, interrupted=interrupted))
        return 130 if interrupted else 1 if lost else 0


async def _until_stopped(cluster: Cluster, stop: asyncio.Event) -> str:
    """Wait for the signal to stop, or until the data directory is lost; return a sentence about that."""
    loss = asyncio.ensure_future(cluster.directory.lost())
    signalled = asyncio.ensure_future(stop.wait())
    try:
        await cluster.parts.first_of(asyncio.wait({loss, signalled}, return_when=asyncio.FIRST_COMPLETED))
        return loss.result() if loss.done() else ""
    finally:
        loss.cancel()
        signalled.cancel()


async def _stop(cluster: Cluster, *, stop_pods: bool) -> bool:
    """Stop all parts; return whether a second Ctrl-C ended the wait for the pods."""
    again, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, again.set)
    try:
        if stop_pods and not await completes(cluster.stop(stop_pods=True), unless=again):
            await cluster.stop(stop_pods=False)
            return True
        if not stop_pods:
            await cluster.stop(stop_pods=False)
        return False
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def _farewell(cluster: Cluster, *, interrupted: bool) -> str:
    """Return what still runs, and how to end it."""
    titles = cluster.still_running()
    ending = "interrupted before all pods had ended" if interrupted else "stopped"
    if not titles:
        return f"{ending}; no process of a pod is left"
    shown = ", ".join(titles[:_MOST_TITLES])
    more = f" and {len(titles) - _MOST_TITLES} more" if len(titles) > _MOST_TITLES else ""
    command = down.command_for(cluster.directory.root)
    return f"{ending}; {down.containers(len(titles))} still running: {shown}{more}; to end: {command}"


def _welcome(cluster: Cluster, *, stop_pods: bool) -> str:
    runtime = cluster.runtime(cluster.node_name)
    machine = cluster.agents[cluster.node_name].ledger.machine
    config = cluster.agents[cluster.node_name].ledger.config
    policy = f"policy {config.policy}"
    if config.policy == "pools":
        policy += f", allocator {config.pools.allocator}"
    cpus = "1 CPU" if len(machine.usable) == 1 else f"{len(machine.usable)} CPUs"
    lines = [
        f"corelane is up at {cluster.url}",
        f"  node {cluster.node_name}: {cpus} ({machine.usable}), {policy}",
        f"  pods run as local processes, confined to their CPUs by {runtime.enforcement}",
    ]
    if runtime.notice:
        lines.append(f"  note: {runtime.notice}")
    lines += [f"  note: {line}" for line in cluster.notes]
    if cluster.options.simulated:
        count = cluster.options.simulated
        lines.append(
            f"  and {count} simulated node{'s' * (count > 1)}, where no process runs "
            "(pods must tolerate the taint corelane.io/simulated)"
        )
    ending = "ends the pods too" if stop_pods else "leaves the pods' processes running"
    stop = f"kill {os.getpid()}" if in_background() else "Ctrl-C"
    lines += [f"  {stop} stops corelane and {ending}"]
    lines += [f"ready: export KUBECONFIG={shlex.quote(str(cluster.directory.kubeconfig))}"]
    return "\n".join(lines)
