"""Decisions as a scheduler recorded them, read from its debug endpoint."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from corelane import input_files
from corelane.node.explain.json_values import from_json
from corelane.node.explain.pod_decision import PodDecision

FILE: Final = "scheduler.json"
"""Beside the kubeconfig of `corelane up`: address and token of its scheduler's debug endpoint."""
_SECONDS: Final = 5.0
_LARGEST: Final = 16 << 20


class NoScheduler(Exception):  # noqa: N818 - a state
    """The scheduler's debug endpoint gave no usable answer; the message has its address and the cause."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a scheduler's decisions are served."""

    url: str
    token: str = ""


def named(url: str) -> Endpoint:
    """Return the endpoint of an address given by a user. Raises NoScheduler for one that is not a URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoScheduler(f"--scheduler {url}: not a URL; give one such as http://127.0.0.1:10251")
    return Endpoint(url.rstrip("/"))


def beside(kubeconfig: Path | None) -> Endpoint | None:
    """Return the endpoint of the `corelane up` that wrote this kubeconfig; None where there is none.

    Without a kubeconfig it is that of $KUBECONFIG, if that names one file.
    """
    if kubeconfig is None:
        named_files = [part for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
        if len(named_files) != 1:
            return None
        kubeconfig = Path(named_files[0])
    try:
        value = json.loads(input_files.read(kubeconfig.parent / FILE, regular=True))
        return Endpoint(str(value["url"]), str(value["token"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def read(endpoint: Endpoint, namespace: str, name: str) -> list[PodDecision]:
    """Return what the scheduler recorded of the pods of this name, the latest first. Raises NoScheduler."""
    url = f"{endpoint.url}/debug/decisions/{quote(namespace, safe='')}/{quote(name, safe='')}"
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - `named` admits http and https only
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            body: bytes = answer.read(_LARGEST + 1)
            if len(body) > _LARGEST:
                raise ValueError(f"more than {_LARGEST >> 20} MiB")
    except urllib.error.HTTPError as error:
        if error.code == 404 and error.headers.get_content_type() == "application/json":
            return []
        raise NoScheduler(f"scheduler {url}: {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or error
        raise NoScheduler(f"scheduler {url}: no answer ({why})") from error
    try:
        return [from_json(PodDecision, record) for record in json.loads(body)["decisions"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoScheduler(f"scheduler {endpoint.url}: answer not understood: {error}") from error
