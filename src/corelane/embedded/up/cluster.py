"""A whole cluster in one process: API server, scheduler, controller, and an agent for each node."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import secrets
import shlex
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web

from corelane import structured_log
from corelane.agent.allocation.instructions import PublishEvent
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.reporting import LogReporter
from corelane.app import machines
from corelane.app.state import cgroups
from corelane.embedded.apiserver.http.auth import MASTERS, User
from corelane.embedded.apiserver.http.in_process import InProcess
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.apiserver.served_kinds import by_path
from corelane.embedded.apiserver.store import state_file
from corelane.embedded.apiserver.store.database import FILE_NAME
from corelane.embedded.apiserver.store.server_backend import Backend
from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.containers.simulated import SimulatedRuntime
from corelane.embedded.housekeeping import Controller
from corelane.embedded.pods.node_status import SIMULATED
from corelane.embedded.pods.other_instances import others_text
from corelane.embedded.pods.pod_agent import Agent
from corelane.embedded.pods.registration import SharedHeartbeats
from corelane.embedded.pods.watching import SharedWatch
from corelane.embedded.up import lost_pods, tls
from corelane.embedded.up import options as checks
from corelane.embedded.up.agent_links import InProcessNodes, PodLogs
from corelane.embedded.up.datadir import DataDir, purge
from corelane.embedded.up.lost_pods import NodeRecords, Recovery
from corelane.embedded.up.options import UpOptions
from corelane.fleet.recorded_decisions import FILE
from corelane.kernel import files
from corelane.kube.client import KubeClient
from corelane.kube.http_listener import HTTPListener
from corelane.machine import Machine
from corelane.machine.watch import MachineWatch
from corelane.node.config import NodeConfig
from corelane.node.recovery.unplaced import OtherContainer
from corelane.runtime.base import LifecycleRuntime
from corelane.scheduler.daemon import http, object_watches
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.explain.record import DecisionRing
from corelane.settings import SettingsError
from corelane.supervise import Parts

_log = structured_log.get_logger("corelane.up")
KUBELET_CGROUPS = "/sys/fs/cgroup"
KUBELET_LOGS = Path("/var/log/pods")
"""Where a kubelet has a directory `NAMESPACE_NAME_UID` for each pod."""
_ADMIN: Final = User("admin", (MASTERS,))
UNSERVED: Final = frozenset(
    kind
    for kind in object_watches.KINDS
    if by_path(kind.api.group, kind.api.version, kind.api.plural) is None
)
"""Kinds that a scheduler watches and the embedded server does not serve."""
_AT_ONCE: Final = 100
"""Simulated nodes started at the same time."""
_PROGRESS_SECONDS: Final = 2.0
"""Time between two reports of how many simulated nodes are registered."""


class DebugEndpoint:
    """Serves what the ring records; `corelane explain` finds address and token beside the kubeconfig."""

    def __init__(self, ring: DecisionRing, directory: DataDir) -> None:
        self._token = secrets.token_urlsafe(32)
        self._file = directory.root / FILE
        app = web.Application()
        app.add_routes(http.routes(ring, self._token))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self._listener: HTTPListener | None = None

    async def start(self) -> None:
        """Listen, and write the file."""
        await self._runner.setup()
        assert self._runner.server is not None
        self._listener = HTTPListener("scheduler's decisions", self._runner.server, _log)
        host, port = await self._listener.start("127.0.0.1", 0)
        url = f"http://{host}:{port}"
        text = json.dumps({"url": url, "token": self._token})
        files.write_atomic(self._file, text.encode(), mode=0o600)

    async def stop(self) -> None:
        self._file.unlink(missing_ok=True)
        if self._listener:
            self._listener.stop()
        await self._runner.cleanup()


def kubelet_beside(
    state_file: Path | None, mounted: str = KUBELET_CGROUPS, logs: Path = KUBELET_LOGS
) -> KubeletStateFile | None:
    """Return the kubelet with that state file; None without a state file."""
    return KubeletStateFile(state_file, PodsBeside(mounted, logs)) if state_file else None


@dataclass(frozen=True, slots=True)
class PodsBeside:
    """The pods of a kubelet on this machine, by the cgroups `mounted` there and the directory of `logs`."""

    mounted: str
    logs: Path

    def running(self) -> set[str] | None:
        return kubelet_pods(self.mounted)

    def names(self) -> dict[str, str]:
        return kubelet_pod_names(self.logs)


def kubelet_pod_names(logs: Path = KUBELET_LOGS) -> dict[str, str]:
    """Return `namespace/name` by UID of the pods with logs; empty where the directory cannot be read."""
    try:
        parts = [path.name.split("_") for path in logs.iterdir()]
    except OSError:
        return {}
    return {part[2]: f"{part[0]}/{part[1]}" for part in parts if len(part) == 3}


def kubelet_pods(mounted: str = KUBELET_CGROUPS) -> set[str] | None:
    """Return the UIDs of the pods with processes in a kubelet's cgroups; None where these are not in view.

    A container with a cgroup namespace of its own sees no other cgroups. Raises StateFileError.
    """
    return {group.uid for group in cgroups.read(mounted)} if cgroups.has_pods(mounted) else None


class Cluster:
    """Starts all parts in order and stops them in reverse order; `parts` raises when one of them fails.

    Raises SettingsError for an invalid option, DataDirError if another corelane uses the directory.
    """

    def __init__(self, options: UpOptions, *, say: Callable[[str], None] = lambda _line: None) -> None:
        """`say` takes lines about the progress of a start that takes long."""
        self.options = options
        self._say = say
        self.node_name = checks.node_name(options)
        self.settings = checks.settings(options)
        self.directory = DataDir(options.data_dir)
        self.parts = Parts()
        self.agents: dict[str, Agent] = {}
        self.recovery = Recovery()
        self.notes: list[str] = []
        """What a person should know of this start, a sentence each."""
        self.url = ""
        self._server: APIServer | None = None
        self._clients: list[KubeClient] = []
        self._runtimes: dict[str, LifecycleRuntime] = {}
        self._nodes: InProcessNodes | None = None
        self._debug: DebugEndpoint | None = None

    async def start(self) -> None:
        """Return when every node is registered. On an error, stop all parts and raise it."""
        try:
            await self._start()
        except BaseException:
            await self.stop(stop_pods=False, undo=True)
            raise

    async def _start(self) -> None:
        here = await asyncio.to_thread(machines.load, None)
        self.notes += here.notes
        checks.check_settings(self.options, self.settings, here)
        simulated = await self._simulated_machine()
        if simulated:
            config = checks.simulated_settings(self.settings, self.options)
            checks.check_settings(self.options, config, simulated, "of simulated nodes: ")
        runtime = await self._open_runtime()
        await self._serve(
            lost_pods.recover(self.recovery, self._records(runtime, here), forget=self.options.forget_pods)
        )
        ring = DecisionRing()
        self._debug = DebugEndpoint(ring, self.directory)
        await self._debug.start()
        assert self._server is not None
        self._nodes = InProcessNodes(self._server.node_objects())
        scheduler = Scheduler(self.client(), decisions=ring, recorder=self._nodes, unserved=UNSERVED)
        self.parts.start("the scheduler", scheduler.run())
        self.parts.start("the controller", Controller(self.client()).run())
        self._add_local(here, runtime)
        if simulated:
            await self._add_simulated(simulated)
        await self._ready(self.node_name)

    async def _ready(self, *names: str) -> None:
        await self.parts.first_of(asyncio.gather(*(self.agents[name].ready() for name in names)))

    async def _simulated_machine(self) -> Machine | None:
        if not self.options.simulated:
            return None
        return await asyncio.to_thread(machines.load, self.options.machine)

    async def _open_runtime(self) -> LocalRuntime:
        """Adopt what runs before the API server has its first request: it may have lost the pods."""
        state = self.directory.node(self.node_name) / "containers"
        runtime = await LocalRuntime.open(state, cgroups=self.options.cgroups)
        self._runtimes[self.node_name] = runtime
        self.notes += runtime.problems
        if self.options.other_instances == "block" and (text := others_text(await runtime.others())):
            self.notes.append(text)
        return runtime

    def _records(self, runtime: LocalRuntime, machine: Machine) -> NodeRecords:
        entries = lost_pods.ledger_entries(self.directory.node(self.node_name), machine, self.settings)
        return NodeRecords(self.node_name, runtime.recorded(), entries)

    async def _serve(self, prepare: Callable[[Backend], None]) -> None:
        access = self.directory.access()
        if self.options.restore_backup is not None:
            self._restore(self.options.restore_backup)
        now = datetime.datetime.now(datetime.UTC)
        port = access.port if self.options.port is None else self.options.port
        root = self.directory.root
        context, authority = await asyncio.to_thread(tls.server_context, root, now, self.notes.append)
        self._server = APIServer(
            data_dir=self.directory.root,
            tokens={access.token: _ADMIN},
            port=port,
            log_source=PodLogs(self.agents),
            tls=context,
            prepare=prepare,
        )
        try:
            await self._server.start()
            self.notes += self.recovery.lines()
        except OSError as error:
            cause = os.strerror(error.errno) if error.errno else str(error)
            raise SettingsError(
                f"port {port} of 127.0.0.1: {cause}; give another with --port (0: any free port)"
            ) from error
        if self._server.kept_backup:
            self.notes.append(_started_empty(self._server.kept_backup))
        self.url = self._server.url
        self.directory.write_kubeconfig(self.url, access.token, authority)
        self.notes += self.directory.notes

    def _restore(self, backup: Path) -> None:
        path = self.directory.root / FILE_NAME
        aside = state_file.restore(path, backup)
        was = f"; the file before is {aside}" if aside else ""
        self.notes.append(f"API server's objects restored from {backup}{was}")

    def client(self) -> KubeClient:
        """Return an administrator's client of the embedded server, closed with the cluster.

        It reaches the server within this process: HTTPS to itself would take most of the CPU time of a pod.
        """
        assert self._server is not None
        client = KubeClient(InProcess(self._server, _ADMIN))
        self._clients.append(client)
        return client

    def _add_local(self, machine: Machine, runtime: LocalRuntime) -> None:
        beside = kubelet_beside(checks.kubelet_state(self.options))
        watch = MachineWatch(machine, load=lambda: machines.load(None))
        self._add(
            self.node_name,
            machine,
            runtime,
            self.settings,
            self.client(),
            kubelet=beside,
            machine_watch=watch,
            notices=[
                *(PublishEvent("", "ContainerRecordRebuilt", text, True) for text in runtime.problems),
                *self.recovery.events(),
            ],
            left_running=self.recovery.unlisted,
            others=runtime.others if self.options.other_instances == "block" else None,
        )

    async def _add_simulated(self, machine: Machine) -> None:
        """Start agents that share a client and a watch, `_AT_ONCE` at a time."""
        client, config = self.client(), checks.simulated_settings(self.settings, self.options)
        assert self._nodes is not None
        heartbeats = SharedHeartbeats(self._nodes, time.time)
        self.parts.start("the heartbeats of simulated nodes", heartbeats.run())
        watch = SharedWatch(client, LogReporter("all simulated nodes"), nodes=f"{SIMULATED}=true")
        self.parts.start("the watch of simulated nodes", watch.run())
        names = [checks.simulated_name(number) for number in range(1, self.options.simulated + 1)]
        begun = shown = time.monotonic()
        for first in range(0, len(names), _AT_ONCE):
            for name in (together := names[first : first + _AT_ONCE]):
                self._runtimes[name] = runtime = SimulatedRuntime(self.directory.node(name))
                self._add(name, machine, runtime, config, client, watch, heartbeats)
            await self._ready(*together)
            if (now := time.monotonic()) - shown >= _PROGRESS_SECONDS:
                shown = now
                done = min(first + _AT_ONCE, len(names))
                self._say(f"{done} of {len(names)} simulated nodes are ready after {now - begun:.0f} s")

    def _add(
        self,
        name: str,
        machine: Machine,
        runtime: LifecycleRuntime,
        config: NodeConfig,
        client: KubeClient,
        watch: SharedWatch | None = None,
        heartbeats: SharedHeartbeats | None = None,
        *,
        kubelet: KubeletStateFile | None = None,
        machine_watch: MachineWatch | None = None,
        notices: Iterable[PublishEvent] = (),
        left_running: Collection[str] = (),
        others: Callable[[], Awaitable[tuple[OtherContainer, ...]]] | None = None,
    ) -> None:
        agent = Agent(
            client,
            node_name=name,
            machine=machine,
            runtime=runtime,
            config=config,
            state_dir=self.directory.node(name),
            watch=watch,
            heartbeats=heartbeats,
            kubelet=kubelet,
            machine_watch=machine_watch,
            reconcile_seconds=checks.reconcile_seconds(self.options),
            notices=notices,
            left_running=left_running,
            others=others,
        )
        self.agents[name] = agent
        self.parts.start(f"the agent of {name}", agent.run())

    def runtime(self, node: str) -> LifecycleRuntime:
        return self._runtimes[node]

    def still_running(self) -> list[str]:
        """Return `namespace/pod/container` of every container of this machine that has a process."""
        runtime = self._runtimes.get(self.node_name)
        specs = runtime.recorded() if isinstance(runtime, LocalRuntime) else []
        return sorted(f"{spec.namespace}/{spec.pod}/{spec.name}" for spec, runs in specs if runs)

    async def stop(self, *, stop_pods: bool, undo: bool = False) -> None:
        """Stop all parts; with `stop_pods` end pods' processes, else leave them to the next start.

        `undo` removes the files of a start that failed in a new directory, before its lock is released.
        """
        await asyncio.gather(*(agent.shutdown(stop_pods=stop_pods) for agent in self.agents.values()))
        for name in self._runtimes.keys() - self.agents.keys():
            await self._runtimes[name].close()
        await self.parts.cancel()
        if self._debug is not None:
            await self._debug.stop()
        for client in self._clients:
            await client.close()
        if self._server is not None:
            await self._server.stop()
        if undo and self.directory.is_new and not self.still_running():
            await asyncio.to_thread(purge, self.directory.root)
        self.directory.close()


def _started_empty(backup: Path) -> str:
    return (
        f"the API server's objects were gone, and it started without them; to use the backup of "
        f"{state_file.backup_age(backup)}, stop corelane and start it with "
        f"--restore-backup {shlex.quote(str(backup))}"
    )
