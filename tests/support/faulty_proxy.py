"""A proxy in front of an API server that fails as networks and servers do; what it did is counted."""

import asyncio
import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

BINDING_FAULTS = (
    "conflict",
    "throttle",
    "error",
    "unavailable",
    "lost",
    "done-lost",
    "done-cut",
    "done-timeout",
    "done-garbage",
    "slow",
)
"""Those that begin with done- carry the request out first."""


@dataclass
class FaultyProxy:
    """`rate` of the requests fail; `watch_seconds` is how long a watch lasts at most, None for ever."""

    target: str
    rng: random.Random
    rate: float = 0.0
    watch_seconds: float | None = None
    watch_delay: float = 0.0
    """How late each piece of a watch arrives."""
    silent_watches: bool = False
    seen: Counter[str] = field(default_factory=Counter)
    url: str = ""
    session: aiohttp.ClientSession | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            return await self._watch(request)
        body = await request.read()
        if self.rng.random() >= self.rate:
            return await self._forward(request, body)
        binding = request.path.endswith("/binding")
        fault = self.rng.choice(BINDING_FAULTS if binding else ("throttle", "error", "lost", "slow"))
        self.seen[fault] += 1
        return await self._fail(fault, request, body)

    async def _fail(self, fault: str, request: web.Request, body: bytes) -> web.StreamResponse:
        done = await self._forward(request, body) if fault.startswith("done-") else None
        if fault == "slow":
            await asyncio.sleep(self.rng.uniform(0, 0.5))
            return await self._forward(request, body)
        if fault in {"lost", "done-lost"}:
            _cut(request)
            raise web.HTTPBadGateway
        if fault == "done-cut":
            assert done is not None
            response = web.StreamResponse(status=done.status, headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"kind":"Status","sta')
            _cut(request)
            return response
        if fault == "done-garbage":
            return web.Response(status=201, body=b"<html>welcome</html>", content_type="text/html")
        code, reason = {
            "conflict": (409, "Conflict"),
            "throttle": (429, "TooManyRequests"),
            "error": (500, "InternalError"),
            "unavailable": (503, "ServiceUnavailable"),
            "done-timeout": (408, "Timeout"),
        }[fault]
        status = {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": fault}
        headers = {"Retry-After": "1"} if code == 429 else {}
        return web.json_response(status, status=code, headers=headers)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        assert self.session is not None
        headers = {
            key: request.headers[key] for key in ("Authorization", "Content-Type") if key in request.headers
        }
        async with self.session.request(
            request.method, self.target + request.path_qs, data=body or None, headers=headers
        ) as answer:
            return web.Response(
                status=answer.status,
                body=await answer.read(),
                headers={"Content-Type": answer.headers.get("Content-Type", "application/json")},
            )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        assert self.session is not None
        headers = {"Authorization": request.headers["Authorization"]}
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        silent = self.silent_watches and self.rng.random() < 0.5
        end = asyncio.timeout(self.rng.uniform(0.2, self.watch_seconds) if self.watch_seconds else None)
        try:
            async with end, self.session.get(self.target + request.path_qs, headers=headers) as answer:
                response.set_status(answer.status)
                await response.prepare(request)
                if silent:
                    self.seen["silent watch"] += 1
                    await asyncio.Event().wait()
                async for chunk in answer.content.iter_any():
                    await asyncio.sleep(self.watch_delay)
                    await response.write(chunk)
        except TimeoutError:
            how = self.rng.choice(("cut", "gone"))
            self.seen[f"watch {how}"] += 1
            if how == "gone":
                gone = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
                await response.write(gone)
            else:
                _cut(request)
        return response


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


@asynccontextmanager
async def proxy(
    target: str, seed: int, rate: float = 0.0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[FaultyProxy]:
    """A proxy on a free loopback port."""
    made = FaultyProxy(target, random.Random(seed), rate)
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    made.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    connector = aiohttp.TCPConnector(limit=0)
    made.session = aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(), read_bufsize=1 << 20
    )
    try:
        yield made
    finally:
        await made.session.close()
        await runner.cleanup()
