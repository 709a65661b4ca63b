"""A latency-critical server with its load in one process, and noise: run by `bench/beside_noise.py`.

server SECONDS FILE: first a request every 2 ms, latency counted from when it was due; then requests without
a pause. spin: works without end. burst: works 4 ms, sleeps 1 ms.
"""

import hashlib
import json
import re
import sys
import time
from pathlib import Path

PERIOD = 0.002
WORK = bytes(512 << 10)
"""Hashed by a request: some tenths of a millisecond, through the caches."""


def serve() -> None:
    hashlib.sha256(WORK).digest()


def latencies(seconds: float) -> list[float]:
    """Return the latency of every request that was due, ascending; one that comes late delays the next."""
    times = []
    start = due = time.perf_counter()
    while due < start + seconds:
        if (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        serve()
        times.append(time.perf_counter() - due)
        due += PERIOD
    return sorted(times)


def throughput(seconds: float) -> float:
    """Return requests per second, one after another."""
    start, count = time.perf_counter(), 0
    while (took := time.perf_counter() - start) < seconds:
        serve()
        count += 1
    return count / took


def server(seconds: float, file: Path) -> None:
    before, began = counters(), time.perf_counter()
    times = latencies(seconds / 2)
    rate = throughput(seconds / 2)
    took = time.perf_counter() - began
    result = {
        "throughput": rate,
        **{f"p{share:g}": times[int(len(times) * share / 100)] for share in (50, 99, 99.9)},
        **{name: (value - before[name]) / took for name, value in counters().items()},
    }
    file.with_suffix(".new").write_text(json.dumps(result))
    file.with_suffix(".new").rename(file)


def counters() -> dict[str, int]:
    """Return the context switches against the process's will and its moves between CPUs, so far."""
    return {
        "switches": _number("status", r"nonvoluntary_ctxt_switches:\s+(\d+)"),
        "migrations": _number("sched", r"nr_migrations\s*:\s*(\d+)"),
    }


def _number(name: str, pattern: str) -> int:
    found = re.search(pattern, Path(f"/proc/self/{name}").read_text())
    return int(found[1]) if found else 0


def spin(seconds: float = float("inf")) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def burst() -> None:
    while True:
        spin(0.004)
        time.sleep(0.001)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["server", seconds, file]:
            server(float(seconds), Path(file))
        case ["spin"]:
            spin()
        case ["burst"]:
            burst()
