"""A histogram that streams: any number of durations in bounded memory, every percentile within 1 %.

Buckets are as wide as 1/128 of the power of two they lie in (after HdrHistogram), so a bucket's middle is at
most 0.4 % from what fell into it.
"""

from collections.abc import Iterable

__all__ = ["Histogram"]

_BITS = 7


class Histogram:
    """Durations in ns, counted. The largest and the sum are exact."""

    __slots__ = ("_counts", "count", "largest", "total")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._counts: dict[int, int] = {}
        self.count = self.total = self.largest = 0
        for value in values:
            self.add(value)

    def add(self, value: int) -> None:
        """Count one duration, ≥ 0."""
        shift = value.bit_length() - _BITS - 1
        bucket = (shift << _BITS + 1) | (value >> shift) if shift > 0 else value
        self._counts[bucket] = self._counts.get(bucket, 0) + 1
        self.count += 1
        self.total += value
        if value > self.largest:
            self.largest = value

    def percentile(self, percent: float) -> int | None:
        """The smallest duration that `percent` of all do not exceed (nearest rank); None if there is none."""
        if not self.count:
            return None
        rank = max(-(-self.count * percent // 100), 1)
        for bucket in sorted(self._counts):
            rank -= self._counts[bucket]
            if rank <= 0:
                return min(_middle(bucket), self.largest)
        return self.largest

    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    def clear(self) -> None:
        """Forget everything, as at the end of a warm-up."""
        self._counts.clear()
        self.count = self.total = self.largest = 0

    def __len__(self) -> int:
        """How many buckets are in use: what the memory depends on."""
        return len(self._counts)


def _middle(bucket: int) -> int:
    shift = bucket >> _BITS + 1
    if not shift:
        return bucket
    low = (bucket & ((1 << _BITS + 1) - 1)) << shift
    return low + (1 << shift >> 1)
