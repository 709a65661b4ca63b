"""When to write an object that follows another one's changes: soon, in one write for a burst, and not often.

No clock: callers pass monotonic seconds.
"""

import random
from typing import Final

_DEBOUNCE: Final = 0.05
_JITTER: Final = 0.25
_RANDOM: Final = random.Random()  # noqa: S311 - jitter, not secrets


class PublishSchedule:
    """A token bucket: `burst` writes at once, then one in `period` seconds, later by up to a quarter of it.

    The jitter keeps a cluster's agents from writing in step.
    """

    def __init__(self, *, burst: int = 5, period: float = 0.5, rng: random.Random | None = None) -> None:
        self._burst, self._period = burst, period
        self._tokens = float(burst)
        self._at = 0.0
        self._random = rng or _RANDOM

    def due(self, now: float) -> float:
        """Return the time of the next write, which covers all changes until then."""
        elapsed = max(now - self._at, 0.0)
        self._tokens = min(self._tokens + elapsed / self._period, float(self._burst))
        wait = max(1.0 - self._tokens, 0.0) * self._period
        if wait:
            wait += self._period * self._random.uniform(0.0, _JITTER)
        self._at = now
        self._tokens -= 1.0
        return now + max(wait, _DEBOUNCE)
