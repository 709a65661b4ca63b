"""`corelane agent run`: the agent of this node, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Literal

from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.node_agent import NodeAgent
from corelane.agent.node_surroundings import NodeAgentSettings, NodeSurroundings
from corelane.agent.state_directory import StateDirectoryTaken
from corelane.app import daemon_log
from corelane.app.agent.options import (
    AgentOptions,
    check_settings,
    kubelet_access,
    naming_state_dir,
    node_file,
    node_name,
)
from corelane.app.connections import POD_RESOURCES, STATE_FILE
from corelane.app.nodefile import NodeFile
from corelane.app.supervise import completes, innermost, until_signal
from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup, container_paths
from corelane.kernel.container_paths import CgroupView
from corelane.kernel.files import Directory
from corelane.kube.client import KubeClient
from corelane.kube.kubelet import KubeletClient
from corelane.kube.pod import Pod
from corelane.machine import Machine, sysfs
from corelane.machine.watch import MachineWatch
from corelane.runtime.cri.runtime import CRIRuntime
from corelane.runtime.podresources import PodResourcesClient


def main(options: AgentOptions, *, log_format: Literal["auto", "text", "json"] = "auto") -> int:
    """Run until SIGINT or SIGTERM. Raises the error that prevented the start."""
    daemon_log.configure(as_json=daemon_log.AS_JSON[log_format])
    return asyncio.run(_run(options))


async def _run(options: AgentOptions) -> int:
    with until_signal(signal.SIGHUP) as stop, naming_state_dir(options.state_dir):
        agent = await start(options)
        try:
            await completes(agent.run(), unless=stop)
        except ExceptionGroup as group:
            if isinstance(error := innermost(group), StateDirectoryTaken):
                raise error from None
            raise
        finally:
            try:
                await agent.close()
            finally:
                await agent.around.client.close()
    return 0


async def start(options: AgentOptions) -> NodeAgent:
    """Return the agent, ready to run. Raises SettingsError, NotTheHost, and what files and sockets raise."""
    name, file = node_name(options), node_file(options)
    view = container_paths.view(_cgroup_root())
    runtime = Path(file.runtime.endpoint.removeprefix("unix://"))
    await asyncio.to_thread(container_paths.check, view, runtime)
    machine = await asyncio.to_thread(host_machine, view)
    check_settings(options, file.config, machine)
    options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = NodeAgentSettings(
        node_name=name,
        state_dir=options.state_dir,
        config=file.config,
        reconcile_seconds=file.reconcile_seconds,
        read_only=options.read_only,
        ignore=options.ignore,
        nri=file.runtime.nri,
        endpoint=file.runtime.endpoint,
    )
    return NodeAgent(settings, _surroundings(options, name, file, view, machine))


def _surroundings(
    options: AgentOptions, name: str, file: NodeFile, view: CgroupView, machine: Machine
) -> NodeSurroundings:
    access = kubelet_access(file.kubelet, name)
    state_file = file.kubelet_state or (STATE_FILE if STATE_FILE.exists() else None)
    return NodeSurroundings(
        client=KubeClient.connect(options.kubeconfig),
        runtime=CRIRuntime(view, file.runtime.endpoint, list_seconds=file.reconcile_seconds),
        machine=machine,
        kubelet=KubeletClient(access, Pod),
        kubelet_address=access.url,
        state_file=KubeletStateFile(state_file) if state_file else None,
        resources=PodResourcesClient(file.kubelet.pod_resources or POD_RESOURCES),
        resources_required=file.kubelet.pod_resources is not None,
        machine_watch=MachineWatch(
            machine, load=lambda: host_machine(view), allowed=lambda: container_cgroup.effective(view, "")
        ),
    )


def _cgroup_root() -> Path:
    host = container_paths.HOST_ROOT
    return host if host.is_dir() else container_paths.DEFAULT_ROOT


def host_machine(view: CgroupView) -> Machine:
    """Return the node's machine: CPUs on-line and in the root cgroup, not those of the agent's own cpuset.

    Raises MachineError, CgroupError.
    """
    allowed: CPUSet = container_cgroup.effective(view, "")
    name = os.uname().nodename
    return sysfs.discover(
        Directory("/sys"), Directory("/proc"), name=name, source="/sys and /proc", allowed=allowed.mask
    )
