"""CPU time of this process by part of corelane: the stack is sampled each time so much CPU time was used.

A sample counts for the innermost function of a part: what the scheduler sends is the client's, what an
informer hands to an agent is the agent's. Rooms without a part (`node`, `placement`, `kube.translate`) count
for their caller. Threads (fsync of ledgers, checkpoints) are measured apart, by their own clocks.
"""

import signal
import time
from collections import Counter
from types import CodeType, FrameType
from typing import Final

PERIOD_S: Final = 0.002
LOOP: Final = "event loop, TLS"
THREADS: Final = "threads (files)"
PARTS: Final = (
    ("/corelane/embedded/apiserver/store/", "store"),
    ("/corelane/embedded/apiserver/", "server"),
    ("/aiohttp/web", "server"),
    ("/corelane/scheduler/", "scheduler"),
    ("/corelane/agent/", "agents"),
    ("/corelane/runtime/", "agents"),
    ("/corelane/embedded/housekeeping/", "controller"),
    ("/corelane/kube/client.py", "client"),
    ("/corelane/kube/connection.py", "client"),
    ("/corelane/kube/informer.py", "client"),
    ("/corelane/kube/decode.py", "client"),
    ("/aiohttp/client", "client"),
    ("/aiohttp/connector.py", "client"),
    ("/structlog/", "log"),
    ("/logging/", "log"),
    ("/corelane/app/", "start"),
)
NAMES: Final = ("server", "store", "client", "scheduler", "agents", "controller", "log", LOOP, THREADS)


class PartSampler:
    """Counts samples until `close`; `take` returns the seconds by part since it was called last."""

    def __init__(self, period: float = PERIOD_S) -> None:
        self._counts: Counter[str] = Counter()
        self._places: Counter[str] = Counter()
        self._within: Counter[str] = Counter()
        self._files: dict[str, str] = {}
        self._mark()
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, period, period)

    def close(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)

    def take(self) -> dict[str, float]:
        """Return CPU seconds by part, and their sum as `total`."""
        main, whole = time.thread_time() - self._main, time.process_time() - self._whole
        counts, self._counts = self._counts, Counter()  # a sample may come at any time
        samples = sum(counts.values()) or 1
        seconds = {part: main * count / samples for part, count in counts.items()}
        seconds |= {THREADS: whole - main, "total": whole}
        self._mark()
        return seconds

    def places(self, most: int = 80) -> dict[str, list[tuple[str, int]]]:
        """Return the functions sampled most, themselves and with what they call, and forget them."""
        itself, self._places = self._places, Counter()
        within, self._within = self._within, Counter()
        return {"itself": itself.most_common(most), "with calls": within.most_common(2 * most)}

    def _mark(self) -> None:
        self._main, self._whole = time.thread_time(), time.process_time()

    def _sample(self, _: int, frame: FrameType | None) -> None:
        part, innermost, stack = "", frame, set()
        while frame is not None:
            name = frame.f_code.co_filename
            found = self._files.get(name)
            if found is None:
                found = self._files[name] = next((part for path, part in PARTS if path in name), "")
            part = part or found
            stack.add(frame.f_code)
            frame = frame.f_back
        part = part or LOOP
        self._counts[part] += 1
        if innermost is not None:
            self._places[f"{part}: {_title(innermost.f_code)}"] += 1
            self._within.update(map(_title, stack))


def _title(code: CodeType) -> str:
    return f"{'/'.join(code.co_filename.split('/')[-2:])}:{code.co_qualname}"
