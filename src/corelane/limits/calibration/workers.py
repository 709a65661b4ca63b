"""Processes that use CPU time as told, each pinned to a CPU; nothing but Python, and nothing of corelane.

A worker says `ready`, waits for a line with the moment to begin at, and reports pauses that it did not ask
for (`p START END`, in ns of the monotonic clock) and the CPU time of each burst (`b NS`), with what it took
to report, sleep and wake before it. Arguments, in ns: what a burst runs (0: spin for ever) and how often; the
shortest pause to report; how long to spin at once, before the moment to begin; how many pauses to report;
and whether a burst is measured by the thread's own CPU clock.

That clock is a system call in which the kernel charges the group up to the nanosecond (task_sched_runtime),
so whoever reads it in a loop is throttled when the quota ends, not at the tick after it. Bursts are therefore
measured by the monotonic clock, which is read without the kernel, and pauses are left out.
"""

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

_PATIENCE_SECONDS = 20.0

_SOURCE = r"""
import ctypes, os, sys, time
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: not even a killed parent leaves a busy loop behind
cpu, run_ns, every_ns, pause_ns, probe_ns, pauses, cpu_clock = map(int, sys.argv[1:8])
os.sched_setaffinity(0, {cpu})
now, used = time.perf_counter_ns, time.thread_time_ns
def tell(text):
    try: os.write(1, text.encode())
    except OSError: os._exit(1)  # nobody listens any more
def spin(until, run_ns):
    global pauses
    last, done = now(), 0
    while last < until and done < run_ns:
        moment = now()
        if moment - last < 50_000: done += moment - last
        elif moment - last > pause_ns and pauses:
            tell("p %d %d\n" % (last, moment))
            pauses -= 1
            if not pauses and until == for_ever: return
        last = moment
for_ever = 10**30
tell("ready\n")
begin = int(sys.stdin.readline() or os._exit(1))
if probe_ns:
    spin(now() + probe_ns, for_ever)
time.sleep(max(begin - now(), 0) / 1e9)
if not run_ns:
    if pauses: spin(for_ever, for_ever)
    while True: pass
due = begin
told = used()
while True:
    start = used()
    if cpu_clock:
        while used() - start < run_ns: pass
    else: spin(2 * for_ever, run_ns)
    last, told = told, used()
    tell("b %d\n" % (told - last))
    due = max(due + every_ns, now())
    wait = due - now()
    if wait > 0: time.sleep(wait / 1e9)
"""


class WorkerError(Exception):
    """A worker did not start."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker's output so far: pauses (start, end) and CPU times, in ns."""

    pauses: tuple[tuple[int, int], ...]
    bursts: tuple[int, ...]


class Worker:
    """A process that waits for the moment to begin."""

    def __init__(self, cpu: int, arguments: Sequence[int]) -> None:
        command = (sys.executable, "-I", "-S", "-c", _SOURCE, str(cpu), *map(str, arguments))
        pipe = subprocess.PIPE
        # A session of its own, so that a Ctrl-C reaches us first and we end it.
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        self.pid = self._process.pid
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._output = ""

    def wait_ready(self) -> None:
        """Raises WorkerError."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + _PATIENCE_SECONDS
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while "ready\n" not in self._output:
                left = deadline - time.monotonic()
                if left <= 0 or self._process.poll() is not None:
                    raise WorkerError(f"a worker did not start within {_PATIENCE_SECONDS:g} s")
                selector.select(left)
                self._read_output()

    def begin(self, moment_ns: int) -> None:
        """Let it begin at a moment of the monotonic clock. Raises WorkerError if it has gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{moment_ns}\n".encode())
            self._process.stdin.flush()
        except OSError as error:
            raise WorkerError(f"a worker has ended: {error.strerror}") from error

    def report(self) -> WorkerReport:
        self._read_output()
        whole = self._output[: self._output.rfind("\n") + 1]
        words = [line.split() for line in whole.splitlines() if " " in line]
        return WorkerReport(
            tuple((int(numbers[0]), int(numbers[1])) for kind, *numbers in words if kind == "p"),
            tuple(int(number) for kind, number, *_ in words if kind == "b"),
        )

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what it was to be told is still buffered
                    continue

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        while piece := self._process.stdout.read(65536):
            self._output += piece.decode()


@contextmanager
def started(count: int, cpus: Sequence[int], arguments: Sequence[int]) -> Iterator[list[Worker]]:
    """Start workers on the CPUs in turn, all ready; they end with the context. Raises WorkerError."""
    workers = [Worker(cpus[number % len(cpus)], arguments) for number in range(count)]
    try:
        for worker in workers:
            worker.wait_ready()
        yield workers
    finally:
        for worker in workers:
            worker.end()
