"""A node with a fake container runtime and a fake cgroup v2, whose containers come and go as a test says."""

import json
import queue
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corelane.kernel.container_paths import CgroupView
from support import fake_cri
from support.cgroup2_fake import FakeV2
from support.grpc_server import Context
from support.protobuf import decode, encode, strings

CREATED, RUNNING, EXITED = range(3)
PID = (1 << 22) + 1
"""Of every container; above the kernel's largest, so that no process of this machine has it."""


class FakeNode:
    """`calls` counts CRI's calls by method; `refusals` maps a method to the code that it fails with."""

    def __init__(self, path: Path, *, events: bool = True, version: str = "2.1.0") -> None:
        self.groups = FakeV2(path / "cgroup")
        self.groups.write(self.groups.root / "cgroup.subtree_control", "+cpuset +cpu")
        self.view = CgroupView(2, self.groups.root, self.groups.root, self.groups)
        self.socket, self.events, self.version = path / "cri.sock", events, version
        self.calls: Counter[str] = Counter()
        self.refusals: dict[str, str] = {}
        self.hung: set[str] = set()
        """Methods of CRI that do not answer."""
        self.updates: list[tuple[str, dict]] = []
        self.containers: dict[str, dict] = {}
        self.listeners: list[queue.Queue] = []
        self.labelled = True

    def add(self, ident: str, *, state: int = RUNNING, name: str = "app", pod: str = "pod1") -> str:
        """A container; one that runs has a process in its cgroup. Returns its id."""
        self.containers[ident] = {"name": name, "pod": pod, "state": CREATED, "record": {}}
        self.set_state(ident, state)
        return ident

    def set_state(self, ident: str, state: int) -> None:
        self.containers[ident]["state"] = state
        group = self.groups.root / self.group(ident)
        if state != CREATED:
            self._make(group)
            (group / "cgroup.procs").write_text(str(PID) if state == RUNNING else "")

    def group(self, ident: str) -> str:
        return f"kubepods/{self.containers[ident]['pod']}/{ident}"

    def _make(self, group: Path) -> None:
        missing = [path for path in (group, *group.parents) if not path.is_dir()]
        for path in reversed(missing):
            self.groups.mkdir(path)
            if path != group:
                self.groups.write(path / "cgroup.subtree_control", "+cpuset +cpu")

    def remove(self, ident: str) -> None:
        """As the runtime removes a container: its cgroup goes as well."""
        group = self.groups.root / self.group(ident)
        if group.is_dir():
            self.vanish(ident)
        del self.containers[ident]

    def vanish(self, ident: str) -> None:
        """The cgroup goes, as when the last process has just ended."""
        group = self.groups.root / self.group(ident)
        (group / "cgroup.procs").write_text("")
        self.groups.rmdir(group)

    def announce(self, ident: str, kind: int) -> None:
        """Send an event: 0 created, 1 started, 2 stopped, 3 deleted."""
        for listener in self.listeners:
            listener.put({1: ident, 2: kind})

    def interrupt(self) -> None:
        """End all streams of events."""
        for listener in self.listeners:
            listener.put(None)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """The endpoint, as long as the runtime runs."""
        answers = {
            "Version": {1: "0.1.0", 2: "containerd", 3: self.version, 4: "v1"},
            "ListContainers": lambda *_: encode({1: [self._listed(ident) for ident in self.containers]}),
            "ListPodSandbox": lambda *_: encode({1: [fake_cri.sandbox("s-pod1", "pod1", "web")]}),
            "ContainerStatus": lambda *request: self.status(*request),
            "UpdateContainerResources": lambda *request: self.update(*request),
        }
        counted = {method: self._counted(method, answer) for method, answer in answers.items()}
        if self.events:
            counted["GetContainerEvents"] = fake_cri.Stream(self._stream)
        with fake_cri.serving(self.socket, counted) as endpoint:
            try:
                yield endpoint
            finally:
                self.interrupt()

    def _counted(self, method: str, answer):
        def respond(request, context):
            self.calls[method] += 1
            while method in self.hung and context.is_active():
                time.sleep(0.01)
            if code := self.refusals.get(method):
                context.abort(code, "refused by the test")
            return answer(request, context) if callable(answer) else encode(answer)

        return respond

    def _labels(self, container: dict) -> list[dict]:
        pod = {"name": "web", "namespace": "default", "uid": container["pod"]} if self.labelled else {}
        labels = {f"io.kubernetes.pod.{key}": value for key, value in pod.items()}
        return strings(labels | {"io.kubernetes.container.name": container["name"]})

    def _listed(self, ident: str) -> dict:
        container = self.containers[ident]
        fields = {1: ident, 2: f"s-{container['pod']}", 3: {1: container["name"]}, 6: container["state"]}
        return fields | {8: self._labels(container)}

    def status(self, request: bytes, context: Context) -> bytes:
        ident = decode(request)[1][0].decode()
        container = self.containers.get(ident)
        if container is None:
            context.abort("NOT_FOUND", "not found")
        status = {1: ident, 2: {1: container["name"]}, 3: container["state"], 5: 1_000_000_000}
        linux = {"cgroupsPath": f"/{self.group(ident)}", "resources": {"cpu": self.record(ident)}}
        info = {"pid": PID, "sandboxID": f"s-{container['pod']}", "runtimeSpec": {"linux": linux}}
        status |= {7: 3, 12: self._labels(container)}
        return encode({1: status, 2: strings({"info": json.dumps(info)})})

    def update(self, request: bytes, context: Context) -> bytes:
        fields = decode(request)
        ident, resources = fields[1][0].decode(), decode(fields[2][0])
        if ident not in self.containers:
            context.abort("NOT_FOUND", "not found")
        self.updates.append((ident, resources))
        record = self.containers[ident]["record"]
        record.update(resources)
        if 6 in record and (group := self.groups.root / self.group(ident)).is_dir():
            self.groups.write(group / "cpuset.cpus", record[6][0].decode())
        return b""

    def record(self, ident: str) -> dict:
        """The runtime's record of a container's CPUs, memory nodes and quota, as its OCI specification."""
        record = self.containers[ident]["record"]
        texts = {name: record.get(number) for name, number in (("cpus", 6), ("mems", 7))}
        numbers = {name: record.get(number) for name, number in (("period", 1), ("quota", 2))}
        cpu = {name: value[0].decode() for name, value in texts.items() if value}
        return cpu | {name: _signed(value[0]) for name, value in numbers.items() if value}

    def _stream(self, _request, context: Context) -> Iterator[dict]:
        listener: queue.Queue = queue.Queue()
        self.listeners.append(listener)
        context.add_callback(lambda: listener.put(None))
        while (event := listener.get()) is not None:
            yield event
        self.listeners.remove(listener)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
