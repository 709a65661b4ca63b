"""The cgroups of a node's pods as a directory tree: both versions, both drivers."""

from pathlib import Path


class Kubepods:
    """A root with sys/fs/cgroup and var/log/containers; `add` puts a running container into it."""

    def __init__(self, root: Path, *, version: int = 2, systemd: bool = True, cpus: str = "0-15") -> None:
        self.root, self.version, self.systemd, self.cpus = root, version, systemd, cpus
        base = root / "sys/fs/cgroup"
        self.base = base if version == 2 else base / "cpuset"
        if version == 2:
            write(base / "cgroup.controllers", "cpuset cpu memory")
        self._group(self.base / self._top(""))

    def add(
        self, uid: str, ident: str, cpus: str = "", *, qos: str = "", alive: bool = True, name: str = ""
    ) -> Path:
        pod = self.base / self._top(qos) / self._pod(uid, qos)
        for parent in (pod.parent, pod):
            self._group(parent)
        path = pod / (f"cri-containerd-{ident}.scope" if self.systemd else ident)
        self._group(path, cpus)
        if self.version == 2:
            write(path / "cgroup.events", f"populated {int(alive)}\nfrozen 0")
        write(path / "cgroup.procs", "4711" if alive else "")
        if name:
            write(self.root / f"var/log/containers/{uid}_default_{name}-{ident}.log", "")
        return path

    def _group(self, path: Path, cpus: str = "") -> None:
        if self.version == 2:
            write(path / "cpuset.cpus", cpus)
            write(path / "cpuset.cpus.effective", cpus or self.cpus)
        else:
            write(path / "cpuset.cpus", cpus or self.cpus)
            write(path / "cpuset.effective_cpus", cpus or self.cpus)

    def _top(self, qos: str) -> str:
        if self.systemd:
            return f"kubepods.slice/kubepods-{qos}.slice" if qos else "kubepods.slice"
        return f"kubepods/{qos}" if qos else "kubepods"

    def _pod(self, uid: str, qos: str) -> str:
        if not self.systemd:
            return f"pod{uid}"
        return f"kubepods-{qos + '-' if qos else ''}pod{uid.replace('-', '_')}.slice"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def listed(uid: str, *containers: tuple[str, str, str], init=(), phase="Running", annotations=None) -> dict:
    """A pod as kubectl prints it; a container is its name, its CPUs (request and limit) and its id."""
    return {
        "kind": "Pod",
        "metadata": {
            "uid": uid,
            "name": uid,
            "namespace": "default",
            "annotations": annotations or {},
        },
        "spec": {
            "containers": [_spec(name, cpu) for name, cpu, _ in containers],
            "initContainers": [_spec(name, cpu) for name, cpu, _ in init],
        },
        "status": {
            "phase": phase,
            "containerStatuses": [_status(name, ident) for name, _, ident in containers if ident],
            "initContainerStatuses": [_status(name, ident) for name, _, ident in init if ident],
        },
    }


def _spec(name, cpu):
    amounts = {"cpu": cpu, "memory": "1Gi"}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}}


def _status(name, ident):
    return {"name": name, "containerID": f"containerd://{ident}", "state": {"running": {}}}
