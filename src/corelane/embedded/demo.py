"""`corelane demo`: the main job, step by step, on this machine and a simulated one.

Everything happens for real: pods go through the API server, the scheduler chooses, the agent pins, and
the allowed CPUs are read from /proc, bypassing the agent.
"""

from __future__ import annotations

import asyncio
import copy
import io
import json
import logging as stdlog
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from corelane import structured_log
from corelane.app.status import gather
from corelane.embedded.containers.enforce import Mode
from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.up.cluster import Cluster
from corelane.embedded.up.options import UpOptions
from corelane.kube.client import KubeClient
from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from corelane.node.explain.cluster_status import ClusterStatus
from corelane.node.explain.json_values import json_value
from corelane.supervise import cancel_on_signal, ignore_signals
from corelane.view import demo as view
from corelane.view import tables
from corelane.view.demo import Check, PoolStep
from corelane.view.status import plain

_PACKAGE = Path(__file__).parents[1]
_PLACES = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples")  # installed; in a checkout
_SIMULATED = "socket:2 core:8 smt:2"
_PATIENCE = 60.0


def load_example(name: str) -> list[dict[str, Any]]:
    """Return the objects of one example, such as "batch". Raises FileNotFoundError."""
    for place in _PLACES:
        path = place / f"{name}.yaml"
        if path.is_file():
            return [document for document in yaml.safe_load_all(path.read_text()) if document]
    raise FileNotFoundError(f"no example {name!r}: looked in {', '.join(map(str, _PLACES))}")


class DemoError(Exception):
    """An expected step did not happen; the message names it."""


def main(*, cgroups: Mode, as_json: bool) -> int:
    """Run the demo, and return the exit status: 0 only if the kernel confirms every pin.

    Raises KeyboardInterrupt after a signal, once everything is cleaned up.
    """
    structured_log.configure(stdlog.ERROR)
    directory = Path(tempfile.mkdtemp(prefix="corelane-demo-"))
    try:
        return asyncio.run(_demo(directory, cgroups, as_json=as_json))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def _demo(directory: Path, cgroups: Mode, *, as_json: bool) -> int:
    cluster = Cluster(
        UpOptions(data_dir=directory / "data", port=0, simulated=1, machine=_SIMULATED, cgroups=cgroups)
    )
    out = view.DemoReport(tables.console(io.StringIO() if as_json else None))
    story = asyncio.create_task(_run(cluster, out))
    cancel_on_signal(story)
    try:
        demo = await story
    finally:
        await cluster.stop(stop_pods=True)
        left = await _clear(directory / "data" / "nodes" / cluster.node_name / "containers", cgroups)
        ignore_signals()
    out.cleaned(left)
    good = demo.good and not left
    if as_json:
        json.dump(demo.plain() | {"left": left, "ok": good}, sys.stdout, indent=2)
        sys.stdout.write("\n")
    out.verdict(demo.checks, ok=good)
    return 0 if good else 1


async def _run(cluster: Cluster, out: view.DemoReport) -> _Demo:
    await cluster.start()
    demo = _Demo(cluster, cluster.client(), out)
    await cluster.parts.first_of(demo.run())
    return demo


async def _clear(state: Path, cgroups: Mode) -> list[str]:
    """Remove the runtime's records, and return the names of processes that still run: none is expected."""
    runtime = await LocalRuntime.open(state, cgroups=cgroups)
    left = [container.name for container in await runtime.containers() if container.state == "running"]
    await runtime.destroy(0)
    return left


@dataclass(slots=True)
class _Demo:
    """One run of the demo and its results."""

    cluster: Cluster
    client: KubeClient
    out: view.DemoReport
    steps: list[PoolStep] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    status: ClusterStatus | None = None
    good: bool = False

    @property
    def node(self) -> str:
        return self.cluster.node_name

    @property
    def cpus(self) -> int:
        return len(self.cluster.agents[self.node].ledger.usable)

    async def run(self) -> None:
        agent, runtime = self.cluster.agents[self.node], self.cluster.runtime(self.node)
        self.out.machine(agent.ledger.machine, runtime.enforcement, runtime.notice, _SIMULATED)
        self.note("start")
        await self.shared_work()
        await self.exclusive()
        await self.simulated_work()
        await self.show()
        await self.release()
        self.out.pool(self.steps)
        self.good = bool(self.checks) and all(check.ok for check in self.checks)

    def note(self, when: str) -> None:
        """Record the pools as they are now."""
        ledger = self.cluster.agents[self.node].ledger
        self.steps.append(PoolStep(when, ledger.shared_pool, ledger.best_effort_pool, ledger.exclusive))

    async def shared_work(self) -> None:
        await self.apply("batch", "burstable")
        await self.running("batch", "burstable-web")
        self.note("batch and burstable-web start")

    async def exclusive(self) -> None:
        """Start the latency-critical service, as large as this machine allows."""
        size = exclusive_size(self.cpus)
        await self.apply("latency-critical", change=lambda pod: resize(pod, max(size, 1)))
        if size:
            await self.running("latency-critical")
            self.note(f"latency-critical starts, {size} exclusive")
        else:
            self.out.say("This machine has 1 CPU, the shared pool: no CPU can be exclusive here.")
            await self.pending("latency-critical")

    async def simulated_work(self) -> None:
        await self.apply("too-big", "numa")
        await self.running("trading-engine", "model-server")
        await self.pending("too-big")

    async def show(self) -> None:
        await self.settled()
        self.checks = await self.read_kernel()
        self.status = await gather(self.client)
        self.out.state(self.status, self.checks)

    async def release(self) -> None:
        """Delete latency-critical, and wait until the shared pool has its CPUs again."""
        if not exclusive_size(self.cpus):
            return
        await self.client.delete(Pod, "latency-critical", namespace="default")
        await self.until("latency-critical is gone", self.is_gone("latency-critical"))
        await self.settled()
        self.note("latency-critical is deleted")
        self.checks += await self.read_kernel()

    # Requests to the cluster.

    async def apply(
        self, *names: str, change: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    ) -> None:
        for name in names:
            for manifest in load_example(name):
                pod = change(manifest) if change else manifest
                self.out.applied(pod["metadata"]["name"])
                await self.client.create(pod)

    async def running(self, *names: str) -> None:
        async def all_run() -> bool:
            pods = {pod.metadata.name: pod for pod in (await self.client.list(Pod)).items}
            return all(name in pods and _is_ready(pods[name]) for name in names)

        await self.until(f"{', '.join(names)} run", all_run)

    async def pending(self, name: str) -> None:
        async def is_explained() -> bool:
            pod = await self.client.get(Pod, name, "default")
            return condition(pod.status.conditions, "PodScheduled") is not None

        await self.until(f"the scheduler gives a reason for pending pod {name}", is_explained)

    def is_gone(self, name: str) -> Callable[[], Awaitable[bool]]:
        async def gone() -> bool:
            return name not in {pod.metadata.name for pod in (await self.client.list(Pod)).items}

        return gone

    async def settled(self) -> None:
        """Wait until /proc matches the ledger: containers of the pool are moved one by one."""

        async def matches() -> bool:
            return all(check.ok for check in await self.read_kernel())

        try:
            await self.until("allowed CPUs in /proc match the ledger", matches)
        except DemoError:
            return  # the checks show the differences

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE):
                while not await condition():  # noqa: ASYNC110 - /proc has no change notification
                    await asyncio.sleep(0.1)
        except TimeoutError:
            raise DemoError(f"timed out after {_PATIENCE:.0f} s waiting until {what}") from None

    async def read_kernel(self) -> list[Check]:
        """Compare the CPUs allowed to every task of every container on this machine with the ledger."""
        ledger, runtime = self.cluster.agents[self.node].ledger, self.cluster.runtime(self.node)
        checks = []
        for container in await runtime.containers():
            entry = ledger.entries.get((container.pod_uid, container.name))
            if container.state != "running" or entry is None:
                continue
            tasks = await runtime.allowed(container.id)
            observed = tuple(sorted({task.cpus for task in tasks}, key=str))
            expected = ledger.runs_on(entry)
            name = f"{entry.pod.removeprefix('default/')}/{container.name}"
            checks.append(Check(name, entry.exclusive, expected, observed, len(tasks)))
        return checks

    def plain(self) -> dict[str, Any]:
        """Return everything shown, for JSON."""
        shown = plain(self.status) if self.status else {}
        return shown | {
            "checks": [check.plain() for check in self.checks],
            "sharedPool": json_value(self.steps),
        }


def exclusive_size(cpus: int) -> int:
    """Return the number of CPUs for the service: up to 4, at most half of the machine; 0 on one CPU."""
    return max(0, min(4, cpus // 2))


def resize(pod: dict[str, Any], cpus: int) -> dict[str, Any]:
    """Return a copy of the pod whose first container requests `cpus` CPUs."""
    changed = copy.deepcopy(pod)
    resources = changed["spec"]["containers"][0]["resources"]
    for kind in ("requests", "limits"):
        resources[kind]["cpu"] = str(cpus)
    return changed


def _is_ready(pod: Pod) -> bool:
    ready = condition(pod.status.conditions, "Ready")
    return ready is not None and ready.status == "True"
