"""`/healthz`, `/livez` and `/readyz`: a server that answers is well."""

from corelane.apiserver import requests
from corelane.apiserver.requests import Query

_CHECKS = ("ping", "log", "etcd")


def answer(path: str, query: Query) -> str:
    """The text for a health path, "" where there is no such check."""
    root, _, check = path.strip("/").partition("/")
    if root not in {"healthz", "livez", "readyz"} or (check and check not in _CHECKS):
        return ""
    if check or not requests.flag(query, "verbose"):
        return "ok"
    lines = [f"[+]{name} ok" for name in _CHECKS]
    return "\n".join([*lines, f"{root} check passed", ""])
