"""A kubelet's HTTPS server: real TLS, client certificates, bearer tokens, and answers that a test scripts."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from support.certificates import Authority

CONFIGURATION: dict[str, Any] = {
    "kind": "KubeletConfiguration",
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "cpuManagerPolicy": "none",
    "cpuManagerReconcilePeriod": "10s",
    "topologyManagerPolicy": "none",
    "topologyManagerScope": "container",
    "memoryManagerPolicy": "None",
    "cgroupDriver": "systemd",
    "cpuCFSQuota": True,
    "cpuCFSQuotaPeriod": "100ms",
    "podLogsDir": "/var/log/pods",
}


@dataclass
class FakeKubelet:
    """`faults[path]` is a status in place of an answer; `slow` is waited before each answer."""

    tokens: set[str] = field(default_factory=set)
    pods: list[Any] = field(default_factory=list)
    configuration: dict[str, Any] = field(default_factory=lambda: dict(CONFIGURATION))
    faults: dict[str, int] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)
    slow: float = 0.0
    seen: list[str] = field(default_factory=list)
    connections: set[int] = field(default_factory=set)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request.path)
        self.connections.add(id(request.transport))
        if self.slow:
            await asyncio.sleep(self.slow)
        if not self._authenticated(request):
            return web.Response(status=401, text="Unauthorized")
        if status := self.faults.get(request.path):
            return web.Response(status=status, text=f"fault {status}")
        if request.path in self.bodies:
            return web.Response(body=self.bodies[request.path], content_type="application/json")
        if request.path == "/pods":
            whole = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": self.pods}
            return web.Response(body=json.dumps(whole).encode(), content_type="application/json")
        if request.path == "/configz":
            return web.json_response({"kubeletconfig": self.configuration})
        return web.Response(status=404, text="404 page not found")

    def _authenticated(self, request: web.Request) -> bool:
        transport = request.transport
        if transport is not None and transport.get_extra_info("peercert"):
            return True
        return request.headers.get("Authorization", "").removeprefix("Bearer ") in self.tokens


@asynccontextmanager
async def serving(
    kubelet: FakeKubelet, pair: Path, clients: Authority | None = None, port: int = 0
) -> AsyncIterator[FakeKubelet]:
    """Serve with the certificate and key in `pair`; certificates of `clients` authenticate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair)
    if clients is not None:
        context.load_verify_locations(cafile=str(clients.write(pair.with_suffix(".clients"))))
        context.verify_mode = ssl.CERT_OPTIONAL
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", kubelet.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, ssl_context=context)
    await site.start()
    kubelet.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield kubelet
    finally:
        await runner.cleanup()


def pod(name: str, uid: str = "", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}]}, **fields}
