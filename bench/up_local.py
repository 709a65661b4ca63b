"""`corelane up` with pods as local processes, measured from outside: start, memory, CPU time while idle.

Also the Table of 2,000 pods, as `kubectl get pods` asks for it: CPU time of the server to write it.
"""

import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from report import Row

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.stored_objects import StoredObject
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod

PODS: Final = 50
TABLE_PODS: Final = 2000
SETTLE_S: Final = 20.0
PATIENCE_S: Final = 180.0
ROUNDS: Final = 15
ENFORCEMENTS: Final = {"auto": "cgroups", "off": "affinity alone"}


def rows(idle_s: float) -> Iterator[Row]:
    """Yield the rows of local pods by what confines them, and of the Table."""
    for option, title in ENFORCEMENTS.items():
        yield from _measured(option, f"{PODS} local pods, {title}", idle_s)
    yield Row(f"Table of {TABLE_PODS:,} pods: CPU time", table_ms(), "ms", 74 / 3)


def _measured(option: str, title: str, idle_s: float) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="corelane-bench-up-local-") as directory:
        data = Path(directory) / "data"
        begun = time.monotonic()
        with _started(data, option) as process:
            yield Row(f"{title}: start", time.monotonic() - begun, "s", None)
            yield Row(f"{title}: CPU time of the start", _cpu_seconds(process.pid), "s", None)
            asyncio.run(_create(data / "kubeconfig"))
            time.sleep(SETTLE_S)
            before, since = _cpu_seconds(process.pid), time.monotonic()
            time.sleep(idle_s)
            used = (_cpu_seconds(process.pid) - before) / (time.monotonic() - since)
            yield Row(f"{title}: idle", 100 * used, "% of a core", 0.5)
            memory = _memory_mib(process.pid)
            yield Row(f"{title}: resident memory, idle", memory["Rss"], "MiB", 80)
            yield Row(f"{title}: proportional memory, idle", memory["Pss"], "MiB", None)


@contextmanager
def _started(data: Path, option: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "corelane", "up", "--data-dir", str(data), "--port", "0", "--stop-pods"]
    with (data.parent / "log").open("wb") as log:
        options = ["--cgroups", option, "--node-name", "bench"]
        process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b"ready:"):
                break
        else:
            raise RuntimeError((data.parent / "log").read_text()[-2000:])
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _create(kubeconfig: Path) -> None:
    """Create the pods, and wait until all run."""
    client = KubeClient.connect(kubeconfig)
    async with asyncio.timeout(PATIENCE_S):
        for number in range(PODS):
            await client.create(_manifest(number))
        while sum(pod.status.phase == "Running" for pod in (await client.list(Pod)).items) < PODS:  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    await client.close()


def _manifest(number: int) -> dict[str, Any]:
    container = {"name": "main", "image": "bench", "command": ["sleep", "infinity"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"bench-{number}", "namespace": "default", "labels": {"app": "bench"}},
        "spec": {"containers": [container | {"resources": {"requests": {"cpu": "10m"}}}]},
    }


def _cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads that live, in seconds."""
    tasks = [task / "schedstat" for task in Path(f"/proc/{pid}/task").iterdir()]
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _memory_mib(pid: int) -> dict[str, float]:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    return {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)}


def table_ms() -> float:
    """Return the least CPU time in ms in which the Table of running pods of 2 KB is written."""
    view = wire.View(served_kinds.PODS, "v1", wire.Representation(form="Table"))
    records = [
        StoredObject(f"default/bench-{number}", number, msgspec.json.encode(_running(number)), {}, {})
        for number in range(1, TABLE_PODS + 1)
    ]
    times = []
    for _ in range(ROUNDS):
        begun = time.thread_time()
        wire.list_bytes(view, records, {"resourceVersion": "1"})
        times.append(time.thread_time() - begun)
    return 1e3 * min(times)


def _running(number: int) -> dict[str, Any]:
    pod, stamp = _manifest(number), f"2026-01-01T00:{number % 60:02}:00Z"
    fields = {
        "f:spec": {"f:containers": {'k:{"name":"main"}': {f"f:{name}": {} for name in "abcdefghijklmno"}}}
    }
    managed = {
        "operation": "Update",
        "apiVersion": "v1",
        "time": stamp,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    managers = [managed | {"manager": name} for name in ("kubectl-client-side-apply", "scheduler", "agent")]
    pod["metadata"] |= {"creationTimestamp": stamp, "managedFields": managers, "uid": f"uid-{number}"}
    pod["spec"] |= {"nodeName": "bench", "restartPolicy": "Always", "schedulerName": "corelane-scheduler"}
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    status = {"name": "main", "ready": True, "restartCount": 0, "state": {"running": {"startedAt": stamp}}}
    pod["status"] = {
        "phase": "Running",
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": stamp} for kind in kinds],
        "podIPs": [{"ip": "127.0.0.1"}],
        "containerStatuses": [
            status | {"image": "bench", "imageID": "", "containerID": f"corelane://{number}"}
        ],
    }
    return pod
