"""A runtime that is to be killed: starts containers as told on its command line, and says which.

Arguments: state directory, mode, then for each container a shell script. Prints a line `id pid` for each.
"endless" as the only script starts containers one after the other, until killed.
"""

import asyncio
import itertools
import os
import sys
from pathlib import Path

from corelane.cpuset import CPUSet
from corelane.embedded.containers.local import LocalRuntime
from corelane.runtime.base import ContainerSpec


def container(name: str, script: str) -> ContainerSpec:
    cpus = CPUSet([min(os.sched_getaffinity(0))])
    command = ("sh", "-c", script)
    return ContainerSpec(
        pod_uid="0a1b", namespace="default", pod="web-0", name=name, command=command, cpus=cpus
    )


async def main(state: str, mode: str, scripts: list[str]) -> None:
    runtime = await LocalRuntime.open(Path(state), cgroups=mode)  # type: ignore[arg-type]
    print("open", flush=True)
    endless = scripts == ["endless"]
    for place, script in enumerate(itertools.repeat("exec sleep 60") if endless else scripts):
        found = await runtime.start(container(f"c{place}", script))
        print(found.id, found.pid, flush=True)
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
