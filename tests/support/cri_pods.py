"""Pods and containers made through a CRI socket as the kubelet makes them.

The messages are encoded by `support.protobuf`, so that corelane's own are not tested against themselves.
Fields are those of `runtime.v1` (api.proto).
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from support.busybox_image import IMAGE, SLEEP
from support.grpc_server import Client
from support.protobuf import decode, encode, strings

NODE_NETWORK = {1: {1: 2}}  # namespace_options: network of the node
RUNTIME, IMAGES = "runtime.v1.RuntimeService", "runtime.v1.ImageService"
RESOURCE_FIELDS = {"period": 1, "quota": 2, "shares": 3, "memory": 4, "oom_score": 5, "cpus": 6, "mems": 7}


@dataclass(frozen=True)
class Pod:
    """A pod with a sandbox; `config` is its PodSandboxConfig."""

    id: str
    uid: str
    name: str
    namespace: str
    config: dict


def resources(**values: object) -> dict:
    """A LinuxContainerResources with these fields alone: `RESOURCE_FIELDS`, and `unified` as a mapping."""
    unified = values.pop("unified", None)
    fields = {RESOURCE_FIELDS[name]: value for name, value in values.items()}
    return fields | ({9: strings(dict(unified))} if unified else {})


class CRIPods:
    """Makes pods behind a CRI socket. Their cgroups lie below `parent`, as the kubelet's below its root."""

    def __init__(self, socket: Path, parent: str) -> None:
        self.socket, self.parent = socket, parent
        self.pods: list[Pod] = []
        self._client = Client(socket)

    @property
    def endpoint(self) -> str:
        return f"unix://{self.socket}"

    def call(self, method: str, fields: dict, service: str = RUNTIME, seconds: float = 60) -> dict[int, list]:
        """The answer's fields; raises GRPCError."""
        return decode(self._client.call(f"/{service}/{method}", encode(fields), seconds))

    def run_pod(
        self,
        name: str,
        uid: str,
        qos: str = "",
        *,
        namespace: str = "default",
        attempt: int = 0,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Pod:
        """Start a pod's sandbox; `qos` is "", "burstable" or "besteffort"."""
        below = f"/{qos}" if qos else ""
        ours = {
            "io.kubernetes.pod.name": name,
            "io.kubernetes.pod.namespace": namespace,
            "io.kubernetes.pod.uid": uid,
        }
        config = {
            1: {1: name, 2: uid, 3: namespace, 4: attempt},
            6: strings(ours | dict(labels or {})),
            7: strings(dict(annotations or {})),
            8: {1: f"/{self.parent}/kubepods{below}/pod{uid}", 2: NODE_NETWORK},
        }
        pod = Pod(_text(self.call("RunPodSandbox", {1: config}), 1), uid, name, namespace, config)
        self.pods.append(pod)
        return pod

    def create_container(
        self,
        pod: Pod,
        name: str,
        *,
        attempt: int = 0,
        command: tuple[str, ...] = SLEEP,
        annotations: Mapping[str, str] | None = None,
        mounts: Mapping[str, Path] | None = None,
        **amounts: object,
    ) -> str:
        """Make a container; `mounts` are the node's paths by the container's, `amounts` as for `resources`.

        Returns its id.
        """
        labels = {
            "io.kubernetes.container.name": name,
            "io.kubernetes.pod.name": pod.name,
            "io.kubernetes.pod.namespace": pod.namespace,
            "io.kubernetes.pod.uid": pod.uid,
        }
        about = {"io.kubernetes.container.restartCount": str(attempt), **(annotations or {})}
        config = {
            1: {1: name, 2: attempt},
            2: {1: IMAGE},
            3: list(command),
            7: [{1: inside, 2: str(path), 3: 1} for inside, path in (mounts or {}).items()],  # read-only
            9: strings(labels),
            10: strings(about),
            15: {1: resources(**({"period": 100_000, "oom_score": 1000} | amounts)), 2: {3: {1: 2}}},
        }
        return _text(self.call("CreateContainer", {1: pod.id, 2: config, 3: pod.config}), 1)

    def run_container(self, pod: Pod, name: str, **more: object) -> str:
        """Create and start a container; returns its id. Takes what `create_container` takes."""
        made = self.create_container(pod, name, **more)
        self.start(made)
        return made

    def start(self, container: str) -> None:
        self.call("StartContainer", {1: container})

    def update(self, container: str, **amounts: object) -> None:
        """Change a container's resources as another client would; fields as for `resources`."""
        self.call("UpdateContainerResources", {1: container, 2: resources(**amounts)})

    def stop(self, container: str, grace_seconds: int = 0) -> None:
        self.call("StopContainer", {1: container, 2: grace_seconds})

    def remove(self, container: str) -> None:
        self.call("RemoveContainer", {1: container})

    def remove_pod(self, pod: Pod) -> None:
        """Stop and remove a pod as the kubelet does: its containers before the sandbox.

        With containers left, removing a sandbox takes containerd's lock against new NRI plugins twice: one
        that registers in between, such as an agent's restart, blocks both for ever (2.1.9).
        """
        self.call("StopPodSandbox", {1: pod.id})
        for container in self.call("ListContainers", {1: {3: pod.id}}).get(1, []):
            self.remove(_text(decode(container), 1))
        self.call("RemovePodSandbox", {1: pod.id})
        self.pods.remove(pod)

    def remove_pods(self) -> None:
        """Remove every pod made here, as far as the runtime still answers."""
        for pod in list(self.pods):
            with suppress(Exception):
                self.remove_pod(pod)

    def info(self, container: str) -> dict:
        """The runtime's own description of a container: `pid`, `runtimeSpec`, `config`, `sandboxID`."""
        answer = self.call("ContainerStatus", {1: container, 2: 1})
        entries = [decode(entry) for entry in answer.get(2, [])]
        return json.loads(next(_text(entry, 2) for entry in entries if _text(entry, 1) == "info"))

    def recorded_cpu(self, container: str) -> dict:
        """The runtime's record of a container's CPU settings: `linux.resources.cpu` of its OCI spec."""
        return self.info(container)["runtimeSpec"]["linux"]["resources"].get("cpu", {})

    def pid(self, container: str) -> int:
        return self.info(container)["pid"]

    def cgroup(self, container: str, controller: str = "cpuset") -> Path:
        """The directory of a running container's cgroup."""
        return process_cgroup(self.pid(container), controller)

    def disconnect(self) -> None:
        self._client.close()


def process_cgroup(pid: int, controller: str = "cpuset", top: Path = Path("/sys/fs/cgroup")) -> Path:
    """The directory of a process's cgroup, in version 1 below its controller's mount."""
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, controllers, path in lines:
        if controller in controllers.split(","):
            return top / controllers / path.lstrip("/")
    return top / next(path for number, _, path in lines if number == "0").lstrip("/")


def _text(fields: dict[int, list], number: int) -> str:
    return fields.get(number, [b""])[0].decode()
