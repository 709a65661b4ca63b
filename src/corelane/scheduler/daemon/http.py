"""HTTP servers of a daemon: health, metrics and recorded decisions."""

import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from ipaddress import ip_address
from ssl import SSLContext
from typing import Final, TypeAlias

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from corelane import prometheus, structured_log
from corelane.kube.http_listener import HTTPListener
from corelane.scheduler.explain import report
from corelane.scheduler.explain.record import DecisionRing

Check: TypeAlias = Callable[[], str]
"""Returns what is wrong, "" if nothing is."""
_log = structured_log.get_logger("corelane.scheduler")
_HEALTH: Final = ("/healthz", "/livez", "/readyz")


class Server:
    """An application that listens once it is started; `name` is for the log."""

    def __init__(self, name: str, app: web.Application) -> None:
        self._name = name
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        self.listener: HTTPListener | None = None

    async def start(self, address: str, port: int, tls: SSLContext | None = None) -> int:
        """Listen, and return the port. Raises OSError."""
        await self._runner.setup()
        assert self._runner.server is not None
        self.listener = HTTPListener(self._name, self._runner.server, _log, tls)
        return (await self.listener.start(address, port))[1]

    async def stop(self) -> None:
        if self.listener:
            self.listener.stop()
        await self._runner.cleanup()


class DaemonServer(Server):
    """Serves /healthz, /livez, /readyz and /metrics."""

    def __init__(
        self, *, live: Mapping[str, Check], ready: Mapping[str, Check], metrics: CollectorRegistry
    ) -> None:
        """Readiness includes the checks of liveness."""
        self._live, self._ready, self._metrics = live, {**live, **ready}, metrics
        app = web.Application()
        for path in _HEALTH:
            app.router.add_get(path, self._health)
        app.router.add_get("/metrics", self._scrape)
        self.router = app.router
        super().__init__("metrics and health", app)

    async def _health(self, request: web.Request) -> web.Response:
        """As kube-apiserver's: `ok`, or one line for each check where one fails or with ?verbose."""
        checks = self._ready if request.path == "/readyz" else self._live
        problems = {name: check() for name, check in checks.items()}
        failed = any(problems.values())
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [f"[-]{name} failed: {why}" if why else f"[+]{name} ok" for name, why in problems.items()]
        end = f"{request.path[1:]} check {'failed' if failed else 'passed'}"
        return web.Response(text="\n".join(["[+]ping ok", *lines, end, ""]), status=500 if failed else 200)

    async def _scrape(self, _: web.Request) -> web.Response:
        return web.Response(
            body=prometheus.text(self._metrics), headers={"Content-Type": prometheus.MEDIA_TYPE}
        )


PATH: Final = "/debug/decisions"
"""The pods decided on most recently; below it, `/{namespace}/{name}`: their decisions, the latest first."""


def routes(ring: DecisionRing, token: str = "") -> list[web.RouteDef]:
    """Return the routes of the recorded decisions, for loopback peers; with a `token`, for who has it."""

    async def titles(request: web.Request) -> web.Response:
        return json_answer({"decisions": report.titles(ring)}) if _allowed(request, token) else _refused()

    async def decisions(request: web.Request) -> web.Response:
        if not _allowed(request, token):
            return _refused()
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        recorded = report.decisions(ring, namespace, name)
        return json_answer({"decisions": recorded}, status=200 if recorded else 404)

    return [web.get(PATH, titles), web.get(f"{PATH}/{{namespace}}/{{name}}", decisions)]


def _allowed(request: web.Request, token: str) -> bool:
    if token:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return secrets.compare_digest(given.encode(), token.encode())
    return is_loopback(request.remote or "")


def is_loopback(host: str) -> bool:
    """Return whether a host, an address or a name, is this one by its loopback interface."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host.lower() == "localhost"


def _refused() -> web.Response:
    return json_answer({"error": "debug endpoints answer loopback peers, or a bearer token"}, status=403)


def json_answer(value: object, status: int = 200) -> web.Response:
    """Return an answer in JSON."""
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
