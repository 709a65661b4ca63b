"""Clocks that a test sets."""

from corelane.agent.event_loop import Clocks


class SetClocks(Clocks):
    """Both clocks show `now`, in seconds, until it is set."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def wall(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class SkewedClocks(Clocks):
    """The real clocks, the wall clock later by `skew` seconds, the other by `monotonic_skew`."""

    def __init__(self) -> None:
        self.skew = self.monotonic_skew = 0.0

    def wall(self) -> float:
        return super().wall() + self.skew

    def monotonic(self) -> float:
        return super().monotonic() + self.monotonic_skew
