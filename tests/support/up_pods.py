"""Pods of a running `corelane up`: ready, and with the main processes that the runtime recorded."""

import json
from contextlib import suppress
from pathlib import Path

from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from support.up import Up


def ready(cluster: Up, *names: str) -> None:
    """Wait until these pods of the namespace `default` are ready."""

    async def all_ready(client: KubeClient) -> bool:
        pods = {p.metadata.name: p for p in (await client.list(Pod)).items}
        return all(
            n in pods and any(c.type == "Ready" and c.status == "True" for c in pods[n].status.conditions)
            for n in names
        )

    cluster.until(all_ready, f"{names} are ready")


def pids(data_dir: Path) -> dict[str, int]:
    """Container (pod/name) to the process id of its main process, as the runtime recorded it."""
    found = {}
    for status in data_dir.glob("nodes/*/containers/containers/*/status.json"):
        with suppress(FileNotFoundError):  # a container that is being removed
            spec = json.loads(status.with_name("spec.json").read_text())["spec"]
            outcome = json.loads(status.read_text())
            if outcome["state"] == "running":
                found[f"{spec['pod']}/{spec['name']}"] = outcome["pid"]
    return found
