"""A timeline of a chosen window: what ran on which CPU, who was throttled when, and when periods began."""

from dataclasses import dataclass

from corelane.limits.model.queues import CPUGroup, Thread


@dataclass(frozen=True, slots=True)
class TimelineSpan:
    """A group on a CPU from `start` to `end`, in ns. `thread` is None where it was held back by its limit."""

    cpu: int
    group: str
    start: int
    end: int
    thread: int | None


@dataclass(frozen=True, slots=True)
class Refill:
    """A period of a group's limit began."""

    group: str
    moment: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """Events from `start` to `end`, in ns; spans are cut at both."""

    start: int
    end: int
    ran: tuple[TimelineSpan, ...]
    throttled: tuple[TimelineSpan, ...]
    refills: tuple[Refill, ...]


class TimelineRecorder:
    """Records what falls into a window, and forgets the rest."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self._ran: list[TimelineSpan] = []
        self._throttled: list[TimelineSpan] = []
        self._refills: list[Refill] = []

    def ran(self, cpu: int, thread: Thread, start: int, end: int) -> None:
        if start < self.end and end > self.start:
            span = TimelineSpan(
                cpu, thread.group.name, max(start, self.start), min(end, self.end), thread.number
            )
            self._ran.append(span)

    def throttled(self, cpu: int, group: CPUGroup, start: int, end: int) -> None:
        if start < self.end and end > self.start:
            span = TimelineSpan(cpu, group.name, max(start, self.start), min(end, self.end), None)
            self._throttled.append(span)

    def refilled(self, group: CPUGroup, moment: int) -> None:
        if self.start <= moment < self.end:
            self._refills.append(Refill(group.name, moment))

    def timeline(self) -> Timeline:
        return Timeline(
            self.start,
            self.end,
            tuple(sorted(self._ran, key=_place)),
            tuple(sorted(self._throttled, key=_place)),
            tuple(self._refills),
        )


def _place(span: TimelineSpan) -> tuple[int, int]:
    return span.cpu, span.start
