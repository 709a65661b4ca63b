"""What happens in a guest with cgroup v2: the local runtime at work, told to the test as lines of JSON.

Every scene is played by corelane's own code; what is told is read from the kernel's files, past that code.
A scene that fails tells why, and the next one is played all the same. With a scene's name as the argument
only that one is played, and whatever else is needed is up to the caller.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from corelane.cpuset import CPUSet
from corelane.embedded.containers.local import LocalRuntime
from corelane.runtime.base import ContainerSpec, ResourceUpdate, RuntimeStatus

TOP = Path("/sys/fs/cgroup")
HERE = Path(__file__)
VICTIM = HERE.with_name("runtime_victim.py")
PATIENCE = 60.0
DEMO_SECONDS = 300.0
NOBODY = 65534
# A shell between the two, as setpriv itself may still open what is closed to its new user.
AS_NOBODY = (
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    "sh",
    "-c",
    'exec "$0" "$@"',
)
DEMO = (
    "from corelane.embedded import demo; from corelane.cli import main; "
    f"demo._PATIENCE = {DEMO_SECONDS}; main()"
)
PYTHON = (sys.executable, "-I", "-S", "-u", "-c")
CROWD = """
import subprocess, threading, time
for _ in range(3): threading.Thread(target=time.sleep, args=(600,)).start()
subprocess.Popen(["sleep", "600"], start_new_session=True)
print("ready")
"""
STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0: os.setsid()
print("ready")
time.sleep(600)
"""
RESTLESS = """
import os
for wanted in ({0, 1, 2, 3}, {0}):
    try: os.sched_setaffinity(0, wanted)
    except OSError as error: print(error.errno)
    print(sorted(os.sched_getaffinity(0)))
"""

MEMORY_LIMIT = 32 << 20
EATER = "held = [bytearray(b'x') * (1 << 20) for _ in range(64)]"
CHILD_EATS = f"""
import os
child = os.fork()
if child == 0:
    {EATER}
    os._exit(0)
os.waitpid(child, 0)
"""

Facts = dict[str, Any]
Scene = Callable[[], Awaitable[Facts]]


class CannotPlayError(Exception):
    """A scene that cannot be played; the message says why."""


# What the kernel says.


def files(group: Path) -> dict[str, str]:
    names = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpu.weight", "cpu.max")
    return {name: (group / name).read_text().strip() for name in names}


def members(group: Path) -> list[int]:
    return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]


def allowed(group: Path) -> list[str]:
    """Cpus_allowed_list of every task of every process in a group."""
    tasks = (task for pid in members(group) for task in Path(f"/proc/{pid}/task").iterdir())
    return [_field(task / "status", "Cpus_allowed_list") for task in tasks]


def _field(status: Path, name: str) -> str:
    return next(line.split()[1] for line in status.read_text().splitlines() if line.startswith(f"{name}:"))


def groups_left() -> list[str]:
    return sorted(str(path.relative_to(TOP)) for path in TOP.rglob("*corelane*") if path.is_dir())


def alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def group_of(runtime: LocalRuntime, name: str = "") -> Path:
    return TOP / "corelane" / runtime.instance / "0a1b" / name


# What is asked of corelane.


def spec(name: str, *command: str, cpus: str, **more: Any) -> ContainerSpec:
    asked = {"namespace": "default", "pod": "web-0", "pod_uid": "0a1b", **more}
    return ContainerSpec(name=name, command=command, cpus=CPUSet.parse(cpus), **asked)


@asynccontextmanager
async def opened() -> AsyncIterator[LocalRuntime]:
    with tempfile.TemporaryDirectory() as directory:
        runtime = await LocalRuntime.open(Path(directory) / "state")
        try:
            yield runtime
        finally:
            await runtime.destroy(0)


async def output(runtime: LocalRuntime, one: RuntimeStatus, follow: bool = False) -> str:
    return b"".join([piece async for piece in runtime.logs(one.id, follow=follow)]).decode()


async def ready(runtime: LocalRuntime, one: RuntimeStatus) -> None:
    while "ready" not in await output(runtime, one):
        await asyncio.sleep(0.05)


# The scenes.


async def opening() -> Facts:
    async with opened() as runtime:
        facts = {"enforcement": runtime.enforcement, "notice": runtime.notice, "open": groups_left()}
        facts["instance"] = runtime.instance
        facts["handed down"] = (TOP / "corelane/cgroup.subtree_control").read_text().split()
    return facts | {"left": groups_left()}


async def starting_and_updating() -> Facts:
    """A crowd of tasks beside a small sidecar; then the crowd is moved, freed of its limit, and shrunk."""
    asked = {"cpu_shares_milli": 2000, "quota_us": 200_000, "mems": CPUSet.parse("1")}
    async with opened() as runtime:
        main = await runtime.start(spec("main", *PYTHON, CROWD, cpus="2-3", **asked))
        side = await runtime.start(spec("side", "sleep", "600", cpus="0-1", cpu_shares_milli=500))
        await ready(runtime, main)
        crowd, beside = group_of(runtime, "main"), group_of(runtime, "side")

        async def seen() -> Facts:
            told = [str(task.cpus) for task in await runtime.allowed(main.id)]
            return {"files": files(crowd), "allowed": allowed(crowd), "told": told}

        facts: Facts = {"started": await seen(), "pids": members(crowd), "main pid": main.pid}
        facts["pod"] = (group_of(runtime) / "cpu.weight").read_text().strip()
        facts["side"] = {"files": files(beside), "allowed": allowed(beside), "pids": members(beside)}
        facts["side pid"] = side.pid
        facts["processes above"] = members(group_of(runtime)) + members(TOP / "corelane")
        wider = {"cpus": CPUSet.parse("1-3"), "mems": CPUSet.parse("0-1")}
        await runtime.update(main.id, ResourceUpdate(**wider, quota_us=None, shares_milli=1000))
        facts["moved"] = await seen()
        await runtime.update(main.id, ResourceUpdate(cpus=CPUSet.parse("1"), quota_us=5_000))
        facts["shrunk"] = await seen()
        facts["side afterwards"] = files(beside)
    return facts | {"left": groups_left()}


async def trying_to_leave() -> Facts:
    """Tasks that ask for other CPUs than the cpuset has."""
    async with opened() as runtime:
        one = await runtime.start(spec("main", *PYTHON, RESTLESS, cpus="2-3"))
        return {"said": (await output(runtime, one, follow=True)).splitlines()}


async def throttling() -> Facts:
    """A quota of a fifth of a CPU, under a process that wants a whole one."""
    async with opened() as runtime:
        await runtime.start(spec("main", "sh", "-c", "while :; do :; done", cpus="3", quota_us=20_000))
        while not (found := _throttled(group_of(runtime, "main"))):
            await asyncio.sleep(0.1)
    return {"throttled periods": found}


def _throttled(group: Path) -> int:
    lines = (line.split() for line in (group / "cpu.stat").read_text().splitlines())
    return int(dict(lines)["nr_throttled"])


async def out_of_memory() -> Facts:
    """Containers beyond their limits: alone, by a child, and with the limit of their pod."""
    async with opened() as runtime:
        limited = {"memory_limit": MEMORY_LIMIT, "pod_memory_limit": 4 * MEMORY_LIMIT}
        asked = {
            "main": spec("main", *PYTHON, EATER, cpus="1", **limited),
            "child": spec("child", *PYTHON, CHILD_EATS, cpus="1", **limited),
            "within": spec("within", *PYTHON, "print('fine')", cpus="1", **limited),
            "free": spec("free", *PYTHON, EATER, cpus="1", pod_uid="0a1c"),
            "pod": spec("pod", *PYTHON, EATER, cpus="1", pod_uid="0a1d", pod_memory_limit=MEMORY_LIMIT),
        }
        ends = {name: await _ended(runtime, await runtime.start(one)) for name, one in asked.items()}
        idle = await runtime.start(spec("idle", "sleep", "600", cpus="1", **limited))
        group = group_of(runtime, "idle")
        names = ("memory.max", "memory.swap.max", "memory.oom.group")
        read = {name: (group / name).read_text().strip() for name in names if (group / name).exists()}
        read["pod"] = (group.parent / "memory.max").read_text().strip()
        await runtime.stop(idle.id, 0)
    return {"ends": ends, "files": read, "left": groups_left()}


async def _ended(runtime: LocalRuntime, one: RuntimeStatus) -> list[Any]:
    while True:
        found = {status.id: status for status in await runtime.containers()}[one.id]
        if found.state == "exited":
            return [found.exit_code, found.oom_killed]
        await asyncio.sleep(0.1)


async def stopping() -> Facts:
    """Processes that ignore SIGTERM, two of which have left for sessions of their own."""
    async with opened() as runtime:
        one = await runtime.start(spec("main", *PYTHON, STUBBORN, cpus="0-3"))
        await ready(runtime, one)
        group = group_of(runtime, "main")
        pids = members(group)
        begun = time.monotonic()
        await runtime.stop(one.id, 0.5)
        took = time.monotonic() - begun
        found = (await runtime.containers())[0]
        facts = {"processes": len(pids), "alive": alive(pids), "group": group.exists(), "seconds": took}
        return facts | {"state": found.state, "signal": found.signal}


async def ending_by_itself() -> Facts:
    """The main process ends, and leaves a child behind."""
    async with opened() as runtime:
        script = "(trap '' TERM HUP; sleep 600) & echo $!; exit 7"
        one = await runtime.start(spec("main", "sh", "-c", script, cpus="1"))
        child = int(await output(runtime, one, follow=True))
        await runtime.stop(one.id, 0)  # returns once everything is tidied up
        found = (await runtime.containers())[0]
        group = group_of(runtime, "main")
        return {"exit code": found.exit_code, "alive": alive([child]), "group": group.exists()}


async def adopting() -> Facts:
    """A runtime is killed while its containers run, and another takes its place."""
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory) / "state"
        before = await asyncio.to_thread(_killed_runtime, state)
        runtime = await LocalRuntime.open(state, cgroups="required")
        try:
            return await _adopted(runtime, before)
        finally:
            await runtime.destroy(0)


def _killed_runtime(state: Path) -> dict[str, int]:
    """What a runtime had started when it was killed: pids by id. One of them ends afterwards."""
    scripts = ("exec sleep 600", "sleep 1; exit 3")
    command = [sys.executable, str(VICTIM), str(state), "required", *scripts]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as victim:
        assert victim.stdout is not None
        victim.stdout.readline()
        lines = [victim.stdout.readline().split() for _ in scripts]
        os.killpg(victim.pid, signal.SIGKILL)
    return {name: int(pid) for name, pid in lines}


async def _adopted(runtime: LocalRuntime, before: dict[str, int]) -> Facts:
    first, second = before
    by_id = {one.id: one for one in await runtime.containers()}
    group = group_of(runtime, "c0")
    facts: Facts = {"same": by_id.keys() == before.keys(), "state": by_id[first].state}
    facts |= {"pid": by_id[first].pid == before[first], "allowed": allowed(group)}
    await runtime.update(first, ResourceUpdate(cpus=CPUSet.parse("2-3"), quota_us=150_000))
    facts |= {"updated": files(group), "allowed then": allowed(group)}
    while by_id[second].state != "exited":
        await asyncio.sleep(0.1)
        by_id = {one.id: one for one in await runtime.containers()}
    await runtime.stop(first, 0)
    return facts | {"exit code": by_id[second].exit_code, "alive": alive(list(before.values()))}


async def losing_a_cpu() -> Facts:
    """A CPU goes offline under a container, and comes back."""
    switch = Path("/sys/devices/system/cpu/cpu3/online")
    async with opened() as runtime:
        await runtime.start(spec("main", "sleep", "600", cpus="2-3"))
        group = group_of(runtime, "main")
        try:
            switch.write_text("0")
            without = {"files": files(group), "allowed": await _until_allowed(group, "2")}
        finally:
            switch.write_text("1")
        return {"without": without, "back": files(group), "allowed": await _until_allowed(group, "2-3")}


async def _until_allowed(group: Path, cpus: str) -> list[str]:
    """The kernel follows a CPU's coming and going a moment later."""
    deadline = time.monotonic() + 120
    while (found := allowed(group)) != [cpus] and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    return found


async def delegated() -> Facts:
    """As an ordinary user in a group that was given to that user, as systemd does it with Delegate=yes."""
    python = await asyncio.to_thread(_python_for_nobody)
    home = _group_of_others("delegated")
    (home / "inner").mkdir()
    for path in (home, home / "inner"):
        for name in ("", "cgroup.procs", "cgroup.subtree_control"):
            os.chown(path / name, NOBODY, NOBODY)
    script = f'echo $$ >{home}/inner/cgroup.procs; exec "$@"'
    facts = await _elsewhere("as_nobody", "sh", "-c", script, "sh", *AS_NOBODY, python=python)
    left = sorted(path.name for path in home.iterdir() if path.is_dir())
    (home / "inner").rmdir()
    home.rmdir()
    return facts | {"left": left}


def _group_of_others(name: str) -> Path:
    """A group beside ours that has our controllers."""
    (TOP / "cgroup.subtree_control").write_text("+cpuset +cpu +memory")
    (TOP / name).mkdir()
    return TOP / name


def _python_for_nobody() -> str:
    """This interpreter may lie in a directory that is closed to others."""
    check = ("-c", "import corelane.embedded.containers.local")
    for python in (sys.executable, "/usr/bin/python3"):
        if not subprocess.run([*AS_NOBODY, python, *check], capture_output=True).returncode:
            return python
    raise CannotPlayError("no Python here that an ordinary user may run, with what the runtime imports")


async def as_nobody() -> Facts:
    async with opened() as runtime:
        facts: Facts = {"enforcement": runtime.enforcement, "notice": runtime.notice, "uid": os.getuid()}
        one = await runtime.start(spec("main", "sleep", "600", cpus="1-2", quota_us=50_000))
        group = TOP / "delegated/corelane" / runtime.instance / "0a1b/main"
        facts |= {"files": files(group), "allowed": allowed(group), "pids": members(group) == [one.pid]}
        return facts


async def boxed_in() -> Facts:
    """In a cgroup namespace whose root holds our own process, as in a container.

    The kernel hands cpu and cpuset down from there, but to groups that cannot hold processes.
    """
    box = _group_of_others("box")
    try:
        facts = await _in(box)
        return facts | {"type": (box / "cgroup.type").read_text().strip()}
    finally:
        box.rmdir()


async def _in(box: Path) -> Facts:
    enter = f'echo $$ >{box}/cgroup.procs; exec unshare --cgroup --mount sh -c "$0" "$@"'
    mount = f'umount -l {TOP} && mount -t cgroup2 cgroup2 {TOP} && exec "$0" "$@"'
    return await _elsewhere("in_the_box", "sh", "-c", enter, mount)


async def in_the_box() -> Facts:
    async with opened() as runtime:
        one = await runtime.start(spec("main", "sleep", "600", cpus="2"))
        told = [str(task.cpus) for task in await runtime.allowed(one.id)]
        facts = {"enforcement": runtime.enforcement, "notice": runtime.notice, "allowed": told}
        return facts | {"inside": (TOP / "cgroup.type").exists(), "beside": members(TOP) != []}


async def _elsewhere(scene: str, *prefix: str, python: str = sys.executable) -> Facts:
    """Play a scene in a process of its own, started by what stands before it."""
    command = [*prefix, python, str(HERE), scene]
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o1777)  # as /tmp is: corelane refuses what others may replace
        environment = os.environ | {"TMPDIR": directory}
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, env=environment, timeout=PATIENCE
        )
    if done.returncode:
        raise RuntimeError(f"exit status {done.returncode}: {done.stderr or done.stdout}")
    found: Facts = json.loads(done.stdout)
    return found


async def demo() -> Facts:
    """`corelane demo`, with patience for an emulated machine, and its lane watched from outside."""
    command = [sys.executable, "-c", DEMO, "demo", "-o", "json"]
    lanes: set[str] = set()
    done = asyncio.create_task(
        asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=DEMO_SECONDS)
    )
    while not done.done():
        lanes.update(_lanes())
        await asyncio.sleep(0.5)
    ended = done.result()
    shown = json.loads(ended.stdout) if ended.stdout.startswith("{") else {}
    kept = {key: shown.get(key) for key in ("checks", "sharedPool", "left", "ok")}
    facts = {"exit": ended.returncode, "errors": ended.stderr[-4000:], "lanes": sorted(lanes)}
    return facts | {"groups": groups_left(), **kept}


def _lanes() -> list[str]:
    """What the cpusets of containers called server say now; they may go at any moment."""
    try:
        return [path.read_text().strip() for path in (TOP / "corelane").glob("*/*/server/cpuset.cpus")]
    except OSError:
        return []


STORY: tuple[tuple[Scene, float], ...] = (
    *(
        (scene, PATIENCE)
        for scene in (opening, starting_and_updating, trying_to_leave, throttling, out_of_memory)
    ),
    *((scene, PATIENCE) for scene in (stopping, ending_by_itself, adopting, losing_a_cpu)),
    *((scene, PATIENCE) for scene in (delegated, boxed_in)),
    (demo, DEMO_SECONDS),
)


async def play(scene: Scene, seconds: float) -> Facts:
    begun = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            facts = await scene()
    except CannotPlayError as reason:
        facts = {"not here": str(reason)}
    except Exception:  # the others are to be told as well
        facts = {"error": traceback.format_exc()}
    return {"scene": scene.__name__, "took": round(time.monotonic() - begun, 1), **facts}


async def tell() -> None:
    for scene, seconds in STORY:
        print(json.dumps(await play(scene, seconds)), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(asyncio.run(globals()[sys.argv[1]]())))
    else:
        asyncio.run(tell())
