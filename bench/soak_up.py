"""`corelane up` as a process that is started and killed many times, and its API by a plain HTTP client."""

import asyncio
import base64
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import soak_kernel as kernel
import yaml

READY: Final = "ready: export KUBECONFIG="
NODE: Final = "soak"
Object = dict[str, Any]


class NoAnswer(Exception):  # noqa: N818 - a state
    """The server is not there, or was killed while it answered."""


class Ended(Exception):  # noqa: N818 - a state
    """`corelane up` ended, or was not ready in time."""

    def __init__(self, status: int | None, output: str) -> None:
        super().__init__(f"exit status {status}" if status is not None else "not ready in time")
        self.status = status
        self.output = output


class Up:
    """One data directory, and the process that serves it at present; each has a log of its own in `logs`."""

    def __init__(self, data: Path, logs: Path, *arguments: str) -> None:
        self.data, self.logs = data, logs
        self.arguments = ("--data-dir", str(data), "--node-name", NODE, *arguments)
        self.lives = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.log = logs / "none"
        self.api = API(data / "kubeconfig")

    @property
    def node(self) -> Path:
        return self.data / "nodes" / NODE

    @property
    def containers(self) -> Path:
        """The directory with one directory for each container's records."""
        return self.node / "containers" / "containers"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def spawn(self, *more: str) -> None:
        self.lives += 1
        self.log = self.logs / f"life-{self.lives:03}.log"
        command = [sys.executable, "-m", "corelane", "up", *self.arguments, "--log-format", "text", *more]
        environment = {**os.environ, "CORELANE_UP_OTHER_INSTANCES": "ignore"}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    async def ready(self, seconds: float = 90.0) -> float:
        """Wait until it serves; return how many seconds that took. Raises Ended."""
        begun = time.monotonic()
        while READY not in self.output:
            if not self.alive:
                raise Ended(self.process.returncode if self.process else None, self.output)
            if time.monotonic() - begun > seconds:
                raise Ended(None, self.output)
            await asyncio.sleep(0.05)
        await self.api.connect()
        return time.monotonic() - begun

    async def start(self, *more: str) -> float:
        self.spawn(*more)
        return await self.ready()

    async def kill(self, number: int = signal.SIGKILL, seconds: float = 60.0) -> int | None:
        """Send a signal; return the exit status, None if the process goes on after so many seconds."""
        assert self.process is not None
        self.process.send_signal(number)
        return await self.ended(seconds)

    async def ended(self, seconds: float) -> int | None:
        assert self.process is not None
        try:
            return await asyncio.to_thread(self.process.wait, seconds)
        except subprocess.TimeoutExpired:
            return None

    def figures(self) -> dict[str, float]:
        """Return CPU seconds, memory, descriptors and threads of the process as it is."""
        return {
            "cpu_s": kernel.cpu_seconds(self.pid),
            "rss_mb": kernel.memory_mb(self.pid),
            "descriptors": float(kernel.descriptors(self.pid)),
            "threads": float(kernel.threads(self.pid)),
        }


class API:
    """Requests with the kubeconfig's token; `connect` reads it again."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.url, self._token = "", ""
        self._tls: ssl.SSLContext | None = None
        self.session: aiohttp.ClientSession | None = None

    async def connect(self) -> None:
        config = yaml.safe_load(self.kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        await self.close()
        self.url, self._token = cluster["server"], user["token"]
        self._tls = ssl.create_default_context(cadata=authority)
        self.session = self.new_session(aiohttp.ClientTimeout(total=30))

    def new_session(self, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        """Return a session of the caller's own. Raises NoAnswer before the first `connect`."""
        if self._tls is None:
            raise NoAnswer("not connected")
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls)
        headers = {"Authorization": f"Bearer {self._token}"}
        return aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)

    async def close(self) -> None:
        if self.session is not None:
            await self.session.close()
            self.session = None

    async def request(self, method: str, path: str, body: Object | None = None) -> tuple[int, Any]:
        """Return status and decoded answer. Raises NoAnswer."""
        if self.session is None:
            raise NoAnswer("not connected")
        try:
            async with self.session.request(method, self.url + path, json=body) as answer:
                data = await answer.read()
                is_json = "json" in answer.headers.get("Content-Type", "")
                return answer.status, json.loads(data) if is_json else data.decode(errors="replace")
        except (aiohttp.ClientError, TimeoutError, OSError, RuntimeError, ValueError) as error:
            raise NoAnswer(str(error)) from error

    async def items(self, path: str) -> list[Object]:
        """Return the items of a list. Raises NoAnswer."""
        status, answer = await self.request("GET", path)
        if status != 200:
            raise NoAnswer(f"GET {path}: {status} {answer}")
        return list(answer["items"])
