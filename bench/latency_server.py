"""A latency-critical server and its load in one process, and noise: run by `bench/agent.py`.

server SECONDS FILE: a request every 2 ms, each 0.5 ms of work; latency counts from when it was due.
noise: works without end.
"""

import json
import re
import sys
import time
from pathlib import Path

PERIOD, WORK = 0.002, 0.0005


def server(seconds: float, file: str) -> None:
    latencies = []
    start = due = time.perf_counter()
    while due < start + seconds:
        if (wait := due - time.perf_counter()) > 0:
            time.sleep(wait)
        spent = time.thread_time()
        while time.thread_time() - spent < WORK:
            pass
        latencies.append(time.perf_counter() - due)
        due += PERIOD
    took = time.perf_counter() - start
    latencies.sort()
    result = {
        "throughput": len(latencies) / took,
        "p99": latencies[int(len(latencies) * 0.99)],
        "switches": _number("status", r"nonvoluntary_ctxt_switches:\s+(\d+)"),
        "migrations": _number("sched", r"nr_migrations\s*:\s*(\d+)"),
    }
    Path(file).write_text(json.dumps(result))


def _number(name: str, pattern: str) -> int:
    found = re.search(pattern, Path(f"/proc/self/{name}").read_text())
    return int(found[1]) if found else 0


if sys.argv[1] == "server":
    server(float(sys.argv[2]), sys.argv[3])
else:
    while True:
        pass
