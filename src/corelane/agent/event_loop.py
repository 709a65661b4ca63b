"""The loop of every agent: observed events are decided, the ledger is saved, instructions are carried out.

While the ledger cannot be written, or a disk does not answer, instructions that change containers wait for
it, and nothing else does: events are handled, readings are taken, and what is reported to the API server is
reported.
"""

import asyncio
import time
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Final, Protocol

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent, EventTimes, Reading
from corelane.agent.allocation.instructions import Instruction, SaveLedger
from corelane.kube.objects import Node
from corelane.node.ledger import NodeState

FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 15.0
SAVE_SECONDS: Final = 5.0
"""For a write of the ledger, after which the loop goes on and looks for its end every FIRST_RETRY."""
_BATCH: Final = 50
_MODE: Final[Hashable] = (events.ModeChanged, None)


class Clocks:
    """Wall clock, in Unix seconds, for timestamps; monotonic clock, in seconds, for deadlines and retries."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def times(self) -> EventTimes:
        """Return the times of an event that is noticed now."""
        return EventTimes(at=self.wall(), now=self.monotonic())


# Events that an agent takes itself: they change what it may do, or what it publishes.


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen(Reading):
    """The agent's Node was added or changed: its labels and annotations are settings."""

    node: Node


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletReported(Reading):
    """The kubelet's configuration, or its CPU allocations, differ from those reported last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHeld(Reading):
    """This agent holds the Lease of its node: schedulers may judge the node by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFilesMissing(Reading):
    """The state directory was made, or made again: what it holds is to be written."""


class EventQueue:
    """Events in order; a newer reading replaces an older one of the same thing.

    All others than readings and facts answer an order, one for each container: so the queue is bounded by the
    number of pods and containers, however long the state machine is held up.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, AgentEvent] = {}
        self._numbers = count()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: AgentEvent) -> None:
        """Add an event, or replace the waiting one about the same thing."""
        subject = event.subject()
        key: Hashable = next(self._numbers) if subject is None else subject
        if isinstance(event, Reading):
            key = (type(event), subject)
            self._waiting.pop(key, None)
        self._waiting[key] = event
        self._filled.set()

    async def filled(self, seconds: float | None = None) -> bool:
        """Wait for an event; return whether there is one after `seconds`."""
        if not self._waiting:
            self._filled.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._filled.wait()
            except TimeoutError:
                return bool(self._waiting)  # an event may come in the turn in which the time is over
        return True

    def take(self) -> list[AgentEvent]:
        """Return at most `_BATCH` events, the oldest first, but for a mode: no other is decided without."""
        keys = [key for key, _ in zip(self._waiting, range(_BATCH), strict=False)]
        if _MODE in self._waiting:
            keys = [_MODE, *(key for key in keys if key != _MODE)]
        return [self._waiting.pop(key) for key in keys]


class LoopAgent(Protocol):
    """An agent, as its loop sees it."""

    async def observe(self) -> None:
        """Read what the next events depend on; events that are put meanwhile are decided with them."""

    def decide(self, *batch: AgentEvent) -> list[Instruction]:
        """Return what follows from events."""

    async def save(self, ledger: NodeState) -> str:
        """Write the ledger durably; return why that failed, or ""."""

    def saved(self, fault: str) -> None:
        """Report the outcome of a write, "" for success."""

    def waits_for_ledger(self, order: Instruction) -> bool:
        """Whether an instruction changes containers, and so waits until the ledger is on disk."""

    def carry_out(self, order: Instruction) -> None:
        """Begin to carry out an instruction."""

    async def batch_done(self) -> None:
        """Do what is due after every batch."""


class EventLoop:
    """Takes events from `queue`, in the thread of the event loop; `run` until cancelled."""

    def __init__(self, queue: EventQueue) -> None:
        self._queue = queue
        self._unsaved: NodeState | None = None
        self._write: tuple[NodeState, asyncio.Task[str]] | None = None
        """The ledger that is being written; there is one write at a time."""
        self._held: list[Instruction] = []
        self._retry_at = 0.0
        self._failures = 0

    @property
    def held(self) -> int:
        """Number of instructions that wait for the ledger to be written."""
        return len(self._held)

    async def run(self, agent: LoopAgent, unsaved: NodeState | None = None) -> None:
        """Handle events until cancelled; what waits for the ledger waits while it cannot be written.

        A ledger that is `unsaved` is written first.
        """
        self._unsaved = unsaved
        try:
            await self._take_events(agent)
        finally:
            if self._write is not None:  # nothing is written after the agent has ended
                self._write[1].cancel()
                await asyncio.wait([self._write[1]])

    async def _take_events(self, agent: LoopAgent) -> None:
        now = asyncio.get_running_loop().time
        while True:
            wait = None if self._unsaved is None else max(self._retry_at - now(), 0.0)
            if await self._queue.filled(wait):
                await agent.observe()
            batch = self._queue.take()
            orders = agent.decide(*batch) if batch else []
            for order in orders:
                if isinstance(order, SaveLedger):
                    self._unsaved = order.ledger
            if self._unsaved is not None and now() >= self._retry_at:
                await self._save(agent, self._unsaved)
            self._carry_out(agent, orders)
            await agent.batch_done()

    async def _save(self, agent: LoopAgent, ledger: NodeState) -> None:
        is_new = self._write is None
        written, write = self._write = self._write or (ledger, asyncio.create_task(agent.save(ledger)))
        await asyncio.wait([write], timeout=SAVE_SECONDS if is_new else 0.0)
        hangs = not write.done()
        if hangs:
            fault = f"a write has not ended after {SAVE_SECONDS:.0f} s; check the disk of the state directory"
        else:
            self._write = None
            fault = write.result()
            if not fault and written is not ledger:
                await self._save(agent, ledger)
                return
        agent.saved(fault)
        if not fault:
            self._unsaved, self._failures, self._retry_at = None, 0, 0.0
            return
        delay = FIRST_RETRY if hangs else min(LONGEST_RETRY, FIRST_RETRY * 2.0**self._failures)
        self._failures = 0 if hangs else min(self._failures + 1, 10)
        self._retry_at = asyncio.get_running_loop().time() + delay

    def _carry_out(self, agent: LoopAgent, orders: list[Instruction]) -> None:
        if self._unsaved is None:
            held, self._held = self._held, []
            orders = held + orders
        for order in orders:
            if isinstance(order, SaveLedger):
                continue
            if self._unsaved is not None and agent.waits_for_ledger(order):
                self._held.append(order)
            else:
                agent.carry_out(order)
