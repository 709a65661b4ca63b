"""A stand-in for Prometheus' HTTP interface: instant queries of a metric, with a selector and a range.

Answers as Prometheus 2.x does (form-encoded POST, `matrix` and `vector` results with values as strings).
Selectors are matched label by label with =, !=, =~ and !~.
"""

import json
import re
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

_QUERY = re.compile(r"(\w+)(?:\{(.*)\})?(?:\[\w+\])?$")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"((?:[^"\\]|\\.)*)"')


class Fake:
    """Series to answer with; `raw` replaces the next answers by a status and a body, `sent` adds headers."""

    def __init__(self) -> None:
        self.series: list[tuple[dict[str, str], list[tuple[float, float]]]] = []
        self.raw: tuple[int, bytes] | None = None
        self.sent: dict[str, str] = {}
        self.queries: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    def add(self, metric: str, values: list[tuple[float, float]], **labels: str) -> None:
        self.series.append(({"__name__": metric, **labels}, values))

    def answer(self, query: str) -> tuple[int, bytes]:
        if self.raw:
            return self.raw
        parsed = _QUERY.match(query)
        assert parsed, query
        found = [one for one in self.series if _matches(one[0], parsed[1], parsed[2] or "")]
        ranged = query.endswith("]")
        result = [_plain(labels, values, ranged=ranged) for labels, values in found]
        kind = "matrix" if ranged else "vector"
        return 200, json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


def _plain(labels: dict[str, str], values: list[tuple[float, float]], *, ranged: bool) -> dict:
    texts = [[at, str(value)] for at, value in values]
    return {"metric": labels, "values": texts} if ranged else {"metric": labels, "value": texts[-1]}


def _matches(labels: dict[str, str], metric: str, selector: str) -> bool:
    if labels["__name__"] != metric:
        return False
    for name, operator, text in _MATCHER.findall(selector):
        wanted = re.sub(r"\\(.)", r"\1", text) if "~" not in operator else text.replace("\\\\", "\\")
        have = labels.get(name, "")
        same = re.fullmatch(wanted, have) is not None if "~" in operator else have == wanted
        if same == operator.startswith("!"):
            return False
    return True


@contextmanager
def serving() -> Iterator[Fake]:
    """The fake on a free port of the loopback."""
    fake = Fake()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            query = urllib.parse.parse_qs(body)["query"][0]
            fake.queries.append(query)
            fake.headers.append(dict(self.headers))
            status, answer = fake.answer(query)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **fake.sent}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
