"""Periodic comparison of what an agent has recorded with machine, kubelet, other instances and containers."""

import asyncio
from collections.abc import Awaitable, Callable

from corelane.agent.allocation import events
from corelane.agent.allocation.events import AgentEvent
from corelane.agent.event_loop import Clocks
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.reporting import AgentReporter
from corelane.machine.watch import MachineWatch
from corelane.node.recovery.unplaced import OtherContainer


class Reconciliation:
    """Reports differences as events, by `put`; each step is tried again in the next period."""

    def __init__(
        self,
        compare: Callable[[], Awaitable[None]],
        seconds: float,
        *,
        put: Callable[[AgentEvent], None],
        reporter: AgentReporter,
        clocks: Clocks,
        warn: Callable[[str, str], None],
        kubelet: KubeletStateFile | None = None,
        machine_watch: MachineWatch | None = None,
        others: Callable[[], Awaitable[tuple[OtherContainer, ...]]] | None = None,
    ) -> None:
        """`compare` compares the containers; `warn` makes an event of the Node from reason and text.

        The other three are looked at where they are given.
        """
        self._compare = compare
        self._seconds = seconds
        self._put = put
        self._reporter = reporter
        self._clocks = clocks
        self._warn = warn
        self._kubelet, self._kubelet_fault = kubelet, ""
        self._machine_watch, self._machine_lock = machine_watch, asyncio.Lock()
        self._others = others

    async def run(self) -> None:
        """Compare in every period, until cancelled; errors are reported."""
        steps = (self.look_at_machine, self.read_kubelet_state, self.look_for_others, self._compare)
        while True:
            await asyncio.sleep(self._seconds)
            for step in steps:
                try:
                    await step()
                except Exception as error:  # noqa: BLE001 - reported; the next period tries again
                    self._reporter.malfunction("reconcile", error)

    async def look_at_machine(self) -> None:
        """Report CPUs that went off-line, or came back."""
        if self._machine_watch is not None:
            async with self._machine_lock:
                machine = await asyncio.to_thread(self._machine_watch.changed)
            if machine is not None:
                self._put(events.MachineChanged(machine=machine, **self._clocks.times()))

    async def look_for_others(self) -> None:
        """Report the containers of other instances on this machine."""
        if self._others is not None:
            self._put(events.OthersSeen(containers=await self._others(), **self._clocks.times()))

    async def read_kubelet_state(self) -> None:
        """Report CPUs pinned by a kubelet on this machine; a fault is reported once."""
        if self._kubelet is None:
            return
        state = await asyncio.to_thread(self._kubelet.read)
        if state.checkpoint is not None:
            event = events.KubeletStateRead(
                checkpoint=state.checkpoint, running=state.running, names=state.names, **self._clocks.times()
            )
            self._put(event)
        if state.fault not in ("", self._kubelet_fault):
            self._reporter.kubelet_unreadable(state.fault)
            self._warn("KubeletStateUnreadable", state.fault)
        self._kubelet_fault = state.fault
