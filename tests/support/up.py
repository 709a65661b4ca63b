"""`corelane up` as users start it: a process of its own, driven through its API."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from corelane.kernel import proc
from corelane.kube.client import KubeClient

T = TypeVar("T")
PATIENCE = 180.0


class Up:
    """A running `corelane up`."""

    def __init__(self, data_dir: Path, *args: str) -> None:
        self.data_dir = data_dir
        self.log = data_dir.with_name(f"{data_dir.name}-{time.monotonic_ns()}.log")
        command = [sys.executable, "-m", "corelane", "up", "--data-dir", str(data_dir), *args]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._wait_until_up()

    def _wait_until_up(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while "corelane is up at" not in self.output:
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"corelane did not come up:\n{self.output}")
            time.sleep(0.05)

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def kubeconfig(self) -> Path:
        return self.data_dir / "kubeconfig"

    def stop(self, number: int = signal.SIGINT) -> float:
        """Send a signal, wait for the end, and return how many seconds that took."""
        begun = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(PATIENCE)
        return time.monotonic() - begun

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def call(self, request: Callable[[KubeClient], Awaitable[T]]) -> T:
        """Do something with a client of this cluster."""

        async def run() -> T:
            client = KubeClient.connect(self.kubeconfig)
            try:
                return await request(client)
            finally:
                await client.close()

        return asyncio.run(run())

    def until(self, request: Callable[[KubeClient], Awaitable[T]], what: str = "") -> T:
        """Ask until the answer is true in Python's sense."""
        deadline = time.monotonic() + PATIENCE
        while not (answer := self.call(request)):
            assert time.monotonic() < deadline, f"waited in vain{what and f' until {what}'}:\n{self.output}"
            time.sleep(0.1)
        return answer


@contextmanager
def up(data_dir: Path, *args: str) -> Iterator[Up]:
    """A cluster that is ended, pods' processes and all, whatever happens to the test."""
    running = Up(data_dir, *args)
    try:
        yield running
    finally:
        running.kill()
        clear(data_dir)


def clear(data_dir: Path) -> None:
    """End what runs of a data directory, and remove its cgroups."""
    from corelane.embedded.containers.local import LocalRuntime

    async def destroy(state: Path) -> None:
        await (await LocalRuntime.open(state)).destroy(0)

    for state in data_dir.glob("nodes/*/containers"):
        asyncio.run(destroy(state))


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": list(containers), "terminationGracePeriodSeconds": 1, **spec},
    }


def container(name: str, script: str, cpu: str = "") -> dict[str, Any]:
    """A shell script; with `cpu` the request and limit, and memory so that it can be Guaranteed."""
    resources = {"cpu": cpu, "memory": "16Mi"}
    asked = {"resources": {"requests": resources, "limits": resources}} if cpu else {}
    return {"name": name, "image": "ignored", "command": ["/bin/sh", "-c", script], **asked}


FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


def is_alive(pid: int) -> bool:
    found = proc.stat(pid)
    return found is not None and found.state not in "ZXx"
