"""The pods of `bench/up.py`, and their creation by a client of its own: `up_pods.py KUBECONFIG COUNT`.

Once connected it waits for a line on its standard input, then creates all of them, so many at a time.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from corelane.kube.client import KubeClient
from corelane.kube.objects import Node

AT_ONCE: Final = 16
SIMULATED: Final = "corelane.io/simulated"
SHAPES: Final[tuple[dict[str, dict[str, str]], ...]] = (
    {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}},
    {"requests": {"cpu": "500m", "memory": "256Mi"}},
    {},
)
"""Guaranteed with exclusive CPUs, burstable, best effort: in turn."""


def pods(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        yield {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"bench-{number}", "namespace": "default", "labels": {"app": "bench"}},
            "spec": {
                "nodeSelector": {SIMULATED: "true"},
                "tolerations": [{"key": SIMULATED, "operator": "Exists"}],
                "containers": [
                    {
                        "name": "main",
                        "image": "bench",
                        "command": ["sleep", "infinity"],
                        "resources": SHAPES[number % len(SHAPES)],
                    }
                ],
            },
        }


async def main(kubeconfig: Path, count: int) -> None:
    client = KubeClient.connect(kubeconfig)
    await client.list(Node, page=1)
    print("connected", flush=True)  # noqa: T201
    await asyncio.to_thread(sys.stdin.readline)
    waiting = pods(count)

    async def create() -> None:
        for pod in waiting:
            await client.create(pod)

    await asyncio.gather(*(create() for _ in range(AT_ONCE)))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
