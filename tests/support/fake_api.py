"""An HTTP server that misbehaves on cue: each request takes the next of the answers scripted for its path."""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from corelane.kube.client import KubeClient

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Fake:
    """`script[path]` are the answers to come, the last one repeated; `seen` are the requests so far."""

    script: dict[str, list[Answer]] = field(default_factory=lambda: defaultdict(list))
    seen: list[web.Request] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.bodies.append(await request.read())
        path = request.path + ("?watch" if "watch" in request.query else "")
        answers = self.script.get(path)
        if not answers:
            return web.json_response({"kind": "Status", "code": 404, "message": "no script"}, status=404)
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Fake, KubeClient]]:
    """A fake on a free loopback port, and a client to it."""
    fake = Fake()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    client = KubeClient.connect_to(fake.url)
    try:
        yield fake, client
    finally:
        await client.close()
        await runner.cleanup()


def answer(body: Any, status: int = 200, content_type: str = "application/json") -> Answer:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def respond(request: web.Request) -> web.StreamResponse:
        return web.Response(body=data, status=status, content_type=content_type)

    return respond


def listing(*items: Any, version: str = "1", continuation: str = "") -> Answer:
    return answer({"metadata": {"resourceVersion": version, "continue": continuation}, "items": items})


def failure(code: int, reason: str, message: str, **details: Any) -> Answer:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return answer(status, status=code)


def watching(*lines: bytes, then: str = "hang") -> Answer:
    """Send the lines; then "hang" on, "end" in good order, or "cut" the connection."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line)
        if then == "cut":
            assert request.transport is not None
            request.transport.close()
        elif then == "hang":
            await asyncio.Event().wait()
        return response

    return respond


def event(kind: str, obj: Any) -> bytes:
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def pod(name: str, version: str = "1", uid: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "resourceVersion": version}
    return {"metadata": metadata, "spec": spec}
