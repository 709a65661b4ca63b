"""Without root everything works by affinity; as root this is tried as `nobody`."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import corelane

SCRIPT = """
import asyncio, json, os, sys
from pathlib import Path
from corelane.cpuset import CPUSet
from corelane.runtime.base import ResourceUpdate, ContainerSpec
from corelane.embedded.containers.local import LocalRuntime

async def main():
    mine = sorted(os.sched_getaffinity(0))
    runtime = await LocalRuntime.open(Path(sys.argv[1]) / "state")
    spec = ContainerSpec(pod_uid="u", namespace="default", pod="p", name="c", cpus=CPUSet(mine[:1]),
                         command=("sh", "-c", "echo hello; sleep 60 & sleep 60"))
    found = await runtime.start(spec)
    while len(before := await runtime.allowed(found.id)) < 3:
        await asyncio.sleep(0.01)
    await runtime.update(found.id, ResourceUpdate(cpus=CPUSet(mine[-1:])))
    after = await runtime.allowed(found.id)
    while not (log := b"".join([piece async for piece in runtime.logs(found.id)]).decode()):
        await asyncio.sleep(0.01)
    await runtime.stop(found.id, 5)
    end = (await runtime.containers())[0]
    answer = dict(enforcement=runtime.enforcement, notice=runtime.notice, log=log, signal=end.signal,
                  before=[str(task.cpus) for task in before], after=[str(task.cpus) for task in after])
    await runtime.destroy(1)
    print(json.dumps(answer | {"left": os.listdir(sys.argv[1])}))

asyncio.run(main())
"""
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}


def interpreter():
    """A Python that an ordinary user may run, with what the runtime imports."""
    packages = str(Path(__import__("msgspec").__file__).parents[1])
    environment = {
        "PYTHONPATH": f"{Path(corelane.__file__).parents[1]}:{packages}",
        "PATH": os.environ["PATH"],
    }
    for python in (sys.executable, shutil.which("python3", path="/usr/local/bin:/usr/bin")):
        if python is None:
            continue
        try:
            check = [python, "-B", "-c", "import corelane.embedded.containers.local"]
            subprocess.run(check, env=environment, check=True, capture_output=True, cwd="/", **NOBODY)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python, environment
    pytest.skip(
        "needs a Python 3.11 that an ordinary user may run (this one lies in a directory closed to others)"
    )


def test_an_ordinary_user_gets_containers_pinned_by_affinity():
    python, environment = interpreter()
    with tempfile.TemporaryDirectory() as directory:
        if NOBODY:
            os.chown(directory, NOBODY["user"], NOBODY["group"])
        out = subprocess.check_output(
            [python, "-B", "-c", SCRIPT, directory],
            env=environment,
            text=True,
            timeout=180,
            cwd="/",
            **NOBODY,
        )
    answer = json.loads(out)
    mine = sorted(os.sched_getaffinity(0))
    assert set(answer["before"]) == {str(mine[0])}
    assert set(answer["after"]) == {str(mine[-1])}
    assert (answer["log"], answer["signal"], answer["left"]) == ("hello\n", 15, [])
    if NOBODY:
        assert answer["enforcement"] == "affinity"
        assert "may not be written" in answer["notice"] or "no c" in answer["notice"]
