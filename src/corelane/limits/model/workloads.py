"""Kinds of workload, as values: how many threads, what they run, and what asks them for it.

Times in ns of CPU time where threads run, of the clock elsewhere. A number of threads of None is that of the
CPUs the container may run on: what a runtime finds that looks at the machine and not at its limit.
"""

from dataclasses import dataclass

from corelane.limits.model.clock import MS, US

__all__ = ["Bursts", "Closed", "Duration", "EventServer", "Open", "Parallel", "Server", "Spin", "Workload"]


@dataclass(frozen=True, slots=True)
class Duration:
    """A time drawn anew each time: log-normal with a mean and the deviation of its logarithm; 0 is always."""

    mean_ns: int
    sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class Open:
    """Requests come whether or not earlier ones were answered, at random (Poisson)."""

    per_second: float


@dataclass(frozen=True, slots=True)
class Closed:
    """So many clients, of whom each sends its next request when the last was answered and it has thought."""

    clients: int
    think_ns: int = 0


@dataclass(frozen=True, slots=True)
class Spin:
    """Threads that never stop."""

    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Bursts:
    """Threads that run for a while, all at once, and then sleep.

    Every `every_ns` from the start if that is given, else with a pause of `pause_ns` after each. A job that
    runs each minute, a garbage collector's threads, and sleepers are such. A burst's latency is what it took.
    """

    run: Duration
    every_ns: int = 0
    pause_ns: int = 0
    threads: int | None = 1
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class Server:
    """A pool of threads that takes requests from one queue."""

    service: Duration
    arrivals: Open | Closed
    threads: int | None = None
    network_ns: int = 0


@dataclass(frozen=True, slots=True)
class EventServer:
    """Workers with an event loop each, as nginx has: a connection per request, taken by whoever comes first.

    A connection stays with the worker that has accepted it. A worker that was asleep spends `wake` before it
    looks at what woke it, but only `warm` times as much if that was for less than `warm_ns`; then `accept` on
    a connection, whose request can be read `send_ns` after it came, and `handle` on that. Each connection
    wakes one sleeping worker: the first in a fixed order (EPOLLEXCLUSIVE).
    """

    wake: Duration
    accept: Duration
    handle: Duration
    arrivals: Open | Closed
    threads: int | None = None
    network_ns: int = 100 * US
    send_ns: int = 100 * US
    warm: float = 1.0
    warm_ns: int = 2 * MS


@dataclass(frozen=True, slots=True)
class Parallel:
    """Requests worked on one at a time by a team of threads, region after region, as OpenMP does.

    A request is `serial` work of one thread and `work` of all, both in `regions` equal parts by turns. At the
    end of every part who is done waits for the others and spins for `spin_ns` (GOMP_SPINCOUNT, KMP_BLOCKTIME)
    before it sleeps. `imbalance` is the largest part by which a thread's share exceeds the others', and
    `overhead_ns` what a thread spends on a region besides.
    """

    serial: Duration
    work: Duration
    regions: int
    arrivals: Open | Closed
    threads: int | None = None
    spin_ns: int = 1 * MS
    imbalance: float = 0.1
    overhead_ns: int = 5 * US


Workload = Spin | Bursts | Server | EventServer | Parallel
