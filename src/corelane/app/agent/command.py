"""`corelane agent run`: the agent of this node, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from corelane import input_files, structured_log
from corelane.agent.kubelet.kubelet_allocations import KubeletStateFile
from corelane.agent.kubelet.kubelet_sources import KubeletConnections
from corelane.agent.node_agent import AgentConnections, AgentSettings, NodeAgent
from corelane.agent.source import AnotherAgentActs
from corelane.app import nodefile
from corelane.app.nodefile import (
    CONTAINERD,
    POD_RESOURCES,
    STATE_FILE,
    KubeletConnection,
    NodeFile,
    host_or_given,
    nri_socket,
)
from corelane.cpuset import CPUSet
from corelane.kernel import container_cgroup, container_paths
from corelane.kernel.container_paths import CgroupView
from corelane.kernel.files import Directory
from corelane.kube.client import KubeClient
from corelane.kube.kubeconfig import SERVICE_ACCOUNT
from corelane.kube.kubelet import PORT, KubeletAccess, KubeletClient
from corelane.kube.pod import Pod
from corelane.machine import Machine, sysfs
from corelane.machine.watch import MachineWatch
from corelane.node import NodeConfigError
from corelane.node.config import NodeConfig, check
from corelane.node.ledger import usable_topology
from corelane.runtime.cri.runtime import CRIRuntime
from corelane.runtime.podresources import PodResourcesClient
from corelane.settings import SettingsError
from corelane.supervise import completes, innermost, until_signal

STATE_DIR: Final = Path("/var/lib/corelane")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Options of `corelane agent run`; None is the value of the node's file."""

    node_config: Path | None = None
    node_name: str | None = None
    kubeconfig: Path | None = None
    state_dir: Path = STATE_DIR
    read_only: bool = False
    ignore: bool = False
    runtime: str | None = None
    nri: str | None = None
    reconcile_seconds: float | None = None


def node_name(options: AgentOptions) -> str:
    """Return the name of the node: the option, else $NODE_NAME, else the host's. Raises SettingsError."""
    if options.node_name is not None:
        return host_or_given(options.node_name)
    return host_or_given(os.environ.get("NODE_NAME") or None, "$NODE_NAME")


def node_file(options: AgentOptions) -> NodeFile:
    """Return the node's settings and connections, overridden by options. Raises SettingsError."""
    if options.read_only and options.ignore:
        raise SettingsError("--read-only and --ignore are both given; give one of them")
    if options.kubeconfig:
        input_files.read(options.kubeconfig, regular=True)  # read again when it changes
    empty = NodeFile(NodeConfig(policy="pools"), NodeConfig())
    file = nodefile.read(options.node_config) if options.node_config else empty
    sockets = file.runtime
    if options.runtime is not None:
        if not options.runtime.removeprefix("unix://").startswith("/"):
            raise SettingsError(
                f"--runtime {options.runtime!r} is invalid: use a socket such as {CONTAINERD}"
            )
        sockets = replace(sockets, endpoint=options.runtime)
    if options.nri is not None:
        sockets = replace(sockets, nri=nri_socket("--nri", options.nri))
    seconds = options.reconcile_seconds or file.reconcile_seconds
    return replace(file, runtime=sockets, reconcile_seconds=seconds)


@contextmanager
def naming_state_dir(directory: Path) -> Iterator[None]:
    """Describe an error of a file in the state directory by that directory. Raises SettingsError."""
    try:
        yield
    except OSError as error:
        file = Path(os.fsdecode(error.filename)) if error.filename is not None else None
        if file is None or not (file == directory or directory in file.parents or file in directory.parents):
            raise
        remedy = "give a directory that the agent's user (root, as a rule) may write with --state-dir"
        if isinstance(error, IsADirectoryError):
            remedy = "remove it: it is to be a file"
        raise SettingsError(f"state directory {directory}: {file}: {error.strerror}; {remedy}") from error


def check_settings(options: AgentOptions, config: NodeConfig, machine: Machine) -> None:
    """Raise SettingsError for a setting that the node's machine cannot satisfy, naming the field."""
    try:
        check(config, usable_topology(machine), machine)
    except NodeConfigError as error:
        where = f"{options.node_config}: " if options.node_config else ""
        raise SettingsError(f"{where}{nodefile.explain(error)}") from error


def kubelet_access(
    connection: KubeletConnection, name: str, service_account: Path = SERVICE_ACCOUNT
) -> KubeletAccess:
    """Return how to reach the kubelet; what the file leaves out is that of the agent's pod.

    The address is then that in $NODE_IP, else loopback, where the kubelet's certificate has the node's name.
    """
    given = connection.address
    if not given and (ip := os.environ.get("NODE_IP")):
        given = f"https://[{ip}]:{PORT}" if ":" in ip else f"https://{ip}:{PORT}"
    own_credentials = connection.certificate_file or connection.token_file
    token, authority = service_account / "token", service_account / "ca.crt"
    return KubeletAccess(
        given or f"https://127.0.0.1:{PORT}",
        ca_file=connection.ca_file or (authority if authority.exists() else None),
        certificate_file=connection.certificate_file,
        key_file=connection.key_file,
        token_file=connection.token_file or (token if not own_credentials and token.exists() else None),
        server_name=connection.server_name or ("" if given else name),
        insecure=connection.insecure,
    )


def main(options: AgentOptions, *, log_format: Literal["auto", "text", "json"] = "auto") -> int:
    """Run until SIGINT or SIGTERM. Raises the error that prevented the start."""
    structured_log.configure(as_json=structured_log.AS_JSON[log_format])
    return asyncio.run(_run(options))


async def _run(options: AgentOptions) -> int:
    with until_signal(signal.SIGHUP) as stop, naming_state_dir(options.state_dir):
        agent = await start(options)
        try:
            await completes(agent.run(), unless=stop)
        except ExceptionGroup as group:
            if isinstance(error := innermost(group), AnotherAgentActs):
                raise error from None
            raise
        finally:
            try:
                await agent.close()
            finally:
                await agent.connections.client.close()
    return 0


async def start(options: AgentOptions) -> NodeAgent:
    """Return the agent, ready to run. Raises SettingsError, NotTheHost, and what files and sockets raise."""
    name, file = node_name(options), node_file(options)
    host = container_paths.HOST_ROOT
    view = container_paths.view(host if host.is_dir() else container_paths.DEFAULT_ROOT)
    runtime = Path(file.runtime.endpoint.removeprefix("unix://"))
    await asyncio.to_thread(container_paths.check, view, runtime)
    machine = await asyncio.to_thread(host_machine, view)
    check_settings(options, file.config, machine)
    options.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = AgentSettings(
        node_name=name,
        state_dir=options.state_dir,
        config=file.config,
        reconcile_seconds=file.reconcile_seconds,
        read_only=options.read_only,
        ignore=options.ignore,
        nri=file.runtime.nri,
        endpoint=file.runtime.endpoint,
    )
    access = kubelet_access(file.kubelet, name)
    state_file = file.kubelet_state or (STATE_FILE if STATE_FILE.exists() else None)
    connections = AgentConnections(
        client=KubeClient.connect(options.kubeconfig),
        runtime=CRIRuntime(view, file.runtime.endpoint, list_seconds=file.reconcile_seconds),
        machine=machine,
        kubelet=KubeletConnections(
            KubeletClient(access, Pod),
            access.url,
            state_file=KubeletStateFile(state_file) if state_file else None,
            resources=PodResourcesClient(file.kubelet.pod_resources or POD_RESOURCES),
            resources_required=file.kubelet.pod_resources is not None,
        ),
        machine_watch=MachineWatch(
            machine, load=lambda: host_machine(view), allowed=lambda: container_cgroup.effective(view, "")
        ),
    )
    return NodeAgent(settings, connections)


def host_machine(view: CgroupView) -> Machine:
    """Return the node's machine: CPUs on-line and in the root cgroup, not those of the agent's own cpuset.

    Raises MachineError, CgroupError.
    """
    allowed: CPUSet = container_cgroup.effective(view, "")
    name = os.uname().nodename
    return sysfs.discover(
        Directory("/sys"), Directory("/proc"), name=name, source="/sys and /proc", allowed=allowed.mask
    )
