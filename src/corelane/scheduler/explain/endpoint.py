"""The debug endpoint of the recorded decisions: GET, to loopback peers, or with a token.

GET /debug/decisions                        the pods decided on most recently
GET /debug/decisions/{namespace}/{name}     what is kept of the pods of that name, the latest first
"""

import ipaddress
import secrets
from typing import Final

import msgspec
from aiohttp import web

from corelane.scheduler.explain import report
from corelane.scheduler.explain.ring import DecisionRing

PATH: Final = "/debug/decisions"


def routes(ring: DecisionRing, token: str = "") -> list[web.RouteDef]:
    """Return the routes; with a `token`, loopback peers need it too."""

    async def titles(request: web.Request) -> web.Response:
        return _json({"decisions": report.titles(ring)}) if _allowed(request, token) else _refused()

    async def decisions(request: web.Request) -> web.Response:
        if not _allowed(request, token):
            return _refused()
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        found = report.decisions(ring, namespace, name)
        return _json({"decisions": found}, status=200 if found else 404)

    return [web.get(PATH, titles), web.get(f"{PATH}/{{namespace}}/{{name}}", decisions)]


def _allowed(request: web.Request, token: str) -> bool:
    if token:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        return secrets.compare_digest(given.encode(), token.encode())
    try:
        return ipaddress.ip_address(request.remote or "").is_loopback
    except ValueError:
        return False


def _refused() -> web.Response:
    return _json({"error": "debug endpoints answer loopback peers, or a bearer token"}, status=403)


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
