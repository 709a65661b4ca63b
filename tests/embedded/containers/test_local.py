"""Real processes, in real cgroups where they can be had, and by affinity alone."""

import asyncio
import json
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from corelane.embedded.containers.enforce import mark
from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.containers.start_and_end import _INHERITED as INHERITED
from corelane.kernel import cgroup, proc
from corelane.runtime.base import ResourceUpdate, RuntimeFailure, UnknownContainer
from support.containers import (
    HIGH,
    LOW,
    MINE,
    PYTHON,
    alive,
    both_ways,
    ended,
    eventually,
    needs_two_cpus,
    opened,
    output,
    shell,
    spec,
    status,
)

MARK = mark("").rstrip("=")


def run(main):
    asyncio.run(asyncio.wait_for(main, 180))


@both_ways
async def test_a_container_is_on_its_cpus_from_its_first_instruction(runtime):
    for place, cpus in enumerate((LOW, HIGH)):
        found = await runtime.start(
            spec("grep", "Cpus_allowed_list", "/proc/self/status", attempt=place, cpus=cpus)
        )
        await ended(runtime, found.id)
        assert await output(runtime, found.id) == f"Cpus_allowed_list:\t{cpus}\n"


CROWD = """
import os, subprocess, threading, time
subprocess.Popen(["sh", "-c", "sleep 60 & setsid sleep 60 & wait"])
for _ in range(3): threading.Thread(target=time.sleep, args=(60,)).start()
between = os.fork()
if between == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(60)
    os._exit(0)
os.waitpid(between, 0)
print("ready", flush=True)
time.sleep(60)
"""


@both_ways
@needs_two_cpus
async def test_every_thread_and_descendant_follows_to_other_cpus_and_ends_with_the_container(runtime):
    found = await runtime.start(spec(*PYTHON, CROWD))
    await eventually(lambda: output(runtime, found.id))

    async def crowd():  # all of it: what is being forked has the CPUs of before, and is not seen yet
        tasks = await runtime.allowed(found.id)
        return tasks if len({task.pid for task in tasks}) == 5 and len(tasks) == 8 else None

    for cpus in (LOW, HIGH, MINE, LOW):
        await runtime.update(found.id, ResourceUpdate(cpus=cpus))
        tasks = await eventually(crowd)
        assert {task.cpus for task in tasks} == {cpus}
    await runtime.stop(found.id, 5)
    assert [task.pid for task in tasks if alive(task.pid)] == []
    assert await runtime.allowed(found.id) == []


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("kill -9 $$", 137, 9),
        ("kill -SEGV $$", 139, 11),
        ("exit 143", 143, None),
    ],
)
async def test_how_a_container_ended_is_known(runtime, script, code, number):
    before = time.time()
    found = await ended(runtime, (await runtime.start(shell(script))).id)
    assert (found.exit_code, found.signal) == (code, number)
    assert before <= found.started_at <= found.finished_at <= time.time()


async def test_a_container_gets_a_plain_process_with_the_environment_it_asked_for(runtime, tmp_path):
    script = """
        echo "$GREETING $HOSTNAME"; pwd; umask; tty; ls /proc/self/fd | wc -l
        sh -c 'kill -PIPE $$'; echo $?
    """
    want = ["hello web-0", str(tmp_path), "0022", "not a tty", "4", "141"]
    asked = shell(script, env=(("GREETING", "hello"),), working_dir=str(tmp_path))
    found = await runtime.start(asked)
    await ended(runtime, found.id)
    assert (await output(runtime, found.id)).splitlines() == want


async def test_options_and_secrets_of_corelanes_environment_reach_neither_shim_nor_container(
    runtime, monkeypatch
):
    monkeypatch.setenv("CORELANE_UP_DETACH", "1")
    monkeypatch.setenv("API_TOKEN", "secret")
    found = await runtime.start(spec("sleep", "60"))
    parent = proc.stat(found.pid).ppid
    for pid in (found.pid, parent):
        names = {one.split(b"=")[0].decode() for one in environ(pid) if one}
        assert names <= {"PATH", "LD_LIBRARY_PATH", "LC_CTYPE", *INHERITED, "HOSTNAME", MARK}


def environ(pid):
    return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


async def test_a_container_that_handles_sigterm_ends_as_it_likes(runtime):
    found = await runtime.start(shell("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.05; done"))
    await eventually(lambda: output(runtime, found.id))
    await runtime.stop(found.id, 3600)  # longer than the test
    assert (await status(runtime, found.id)).exit_code == 5
    assert await output(runtime, found.id) == "up\nbye\n"


STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


@both_ways
async def test_a_container_that_ignores_sigterm_is_killed_after_the_grace(runtime):
    found = await runtime.start(spec(*PYTHON, STUBBORN))
    await eventually(lambda: output(runtime, found.id))
    start = time.monotonic()
    await runtime.stop(found.id, 0.3)
    assert time.monotonic() - start >= 0.3
    assert (await status(runtime, found.id)).signal == signal.SIGKILL


async def test_a_second_stop_with_less_grace_cuts_the_first_short(runtime):
    found = await runtime.start(spec(*PYTHON, STUBBORN))
    await eventually(lambda: output(runtime, found.id))
    patient = asyncio.create_task(runtime.stop(found.id, 50))
    await asyncio.sleep(0.1)
    await runtime.stop(found.id, 0)
    await asyncio.wait_for(patient, 120)


@both_ways
async def test_what_the_main_process_leaves_behind_is_killed(runtime):
    script = "sleep 60 & echo $!; (setsid sleep 60 & echo $!); trap '' TERM; exit 0"
    found = await ended(runtime, (await runtime.start(shell(script))).id)
    pids = [int(line) for line in (await output(runtime, found.id)).split()]
    assert len(pids) == 2
    assert [pid for pid in pids if alive(pid)] == []
    assert found.exit_code == 0


@both_ways
@pytest.mark.parametrize(
    ("asked", "reason", "code", "message"),
    [
        (
            spec("no-such-program"),
            "StartError",
            127,
            'exec: "no-such-program": executable file not found in $PATH',
        ),
        (spec("/no/such"), "StartError", 127, 'exec: "/no/such": no such file or directory'),
        (spec("/etc/passwd"), "StartError", 126, 'exec: "/etc/passwd": permission denied'),
        (
            spec("true", working_dir="/no/such"),
            "StartError",
            128,
            'working directory "/no/such": no such file or directory',
        ),
        (spec("tr\0ue"), "StartError", 126, 'exec: "tr\0ue": invalid argument'),
        (spec(), "CreateContainerConfigError", None, "the container has no command"),
        (spec("true", cpus=MINE - MINE), "CreateContainerConfigError", None, "the container has no CPUs"),
    ],
    ids=["program", "path", "permission", "directory", "nul", "command", "cpus"],
)
async def test_a_start_that_fails_says_why_and_leaves_nothing(
    runtime, tmp_path, asked, reason, code, message
):
    with pytest.raises(RuntimeFailure) as caught:
        await runtime.start(asked)
    assert (caught.value.reason, caught.value.exit_code, caught.value.message) == (reason, code, message)
    assert await runtime.containers() == []
    assert list((tmp_path / "state/containers").iterdir()) == []
    await runtime.start(spec("true"))  # its place is free


@pytest.mark.parametrize(("name", "code"), [("no-such-program", 127), ("not-executable", 126)])
def test_a_directory_in_path_that_may_not_be_searched_is_no_reason_for_permission_denied(
    tmp_path, mode, name, code
):
    """To root every directory is open; something that is no directory at all gives the same kind of error."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "not-executable").write_text("")
    (tmp_path / "closed").chmod(0)

    async def main():
        async with opened(tmp_path / "state", mode) as runtime:
            path = f"{tmp_path}/closed:{tmp_path}:{tmp_path}/not-executable:/usr/bin"
            with pytest.raises(RuntimeFailure, match="StartError") as caught:
                await runtime.start(spec(name, env=(("PATH", path),)))
            assert caught.value.exit_code == code

    try:
        run(main())
    finally:
        (tmp_path / "closed").chmod(0o700)


@both_ways
async def test_on_cpus_that_do_not_exist_nothing_starts(runtime):
    with pytest.raises(RuntimeFailure, match=r"CPUsOffline: CPU 4000 went off-line"):
        await runtime.start(spec("true", cpus=type(LOW)([4000])))
    assert await runtime.containers() == []


async def test_a_container_is_not_started_twice(runtime):
    both = await asyncio.gather(
        *(runtime.start(spec("sleep", "60")) for _ in range(2)), return_exceptions=True
    )
    refused = next(result for result in both if isinstance(result, RuntimeFailure))
    running = next(result for result in both if result is not refused)
    assert refused.reason == "CreateContainerError"
    assert f'"main" is there already, attempt 0, as {running.id}' in refused.message
    with pytest.raises(RuntimeFailure, match="CreateContainerError"):
        await runtime.start(spec("sleep", "60", attempt=1))
    await runtime.stop(running.id, 0)
    again = await runtime.start(spec("sleep", "60", attempt=1))
    assert {found.id: found.state for found in await runtime.containers()} == {
        running.id: "exited",
        again.id: "running",
    }


@both_ways
async def test_the_next_run_of_a_container_is_not_harmed_by_the_end_and_removal_of_the_last(runtime):
    found = await runtime.start(spec("sleep", "60"))
    for attempt in range(1, 4):
        last = found.id
        await runtime.signal(last, signal.SIGKILL)
        await ended(runtime, last)
        found = await runtime.start(spec("sleep", "60", attempt=attempt))
        await runtime.remove(last)
    await asyncio.sleep(0.1)
    assert (await status(runtime, found.id)).state == "running"
    assert [task.cpus for task in await runtime.allowed(found.id)] == [LOW]


async def test_every_change_is_told_once_to_everybody_who_listens(tmp_path, mode):
    async with opened(tmp_path / "state", mode) as runtime:
        listeners = [runtime.wait_events() for _ in range(2)]
        found = await runtime.start(shell("sleep 0.1; exit 4"))
        for listener in listeners:
            assert await anext(listener) == found
            end = await anext(listener)
            assert (end.id, end.state, end.exit_code) == (found.id, "exited", 4)
        late = runtime.wait_events()
    for listener in (*listeners, late):
        assert [event async for event in listener] == []


async def test_a_container_is_removed_when_it_has_ended_and_its_log_with_its_pod(runtime, tmp_path):
    found = await runtime.start(shell("echo hello; exec sleep 60"))
    await eventually(lambda: output(runtime, found.id))
    with pytest.raises(RuntimeFailure, match="still runs"):
        await runtime.remove(found.id)
    await runtime.stop(found.id, 0)
    await runtime.remove(found.id)
    await runtime.remove(found.id)
    assert await runtime.containers() == []
    log = tmp_path / "state/logs/default_web-0_0a1b/main/0.log"
    assert log.read_text().endswith(" stdout F hello\n")
    with pytest.raises(UnknownContainer):
        runtime.logs(found.id)
    await runtime.remove_pod("0a1b")
    assert list((tmp_path / "state/logs").iterdir()) == []


async def test_what_is_asked_of_an_unknown_container_is_refused(runtime):
    for request in (
        runtime.update("x", ResourceUpdate()),
        runtime.signal("x", 15),
        runtime.stop("x", 0),
        runtime.allowed("x"),
    ):
        with pytest.raises(UnknownContainer, match="no container has the id 'x'"):
            await request


@both_ways
async def test_a_change_to_a_container_that_has_ended_is_no_error(runtime):
    found = await ended(runtime, (await runtime.start(spec("true"))).id)
    await runtime.update(found.id, ResourceUpdate(cpus=HIGH, quota_us=10_000, shares_milli=5))
    await runtime.signal(found.id, 15)
    await runtime.stop(found.id, 1)


@both_ways
async def test_cpus_that_do_not_exist_are_a_failed_change_and_nothing_moves(runtime, tmp_path):
    found = await runtime.start(spec("sleep", "60"))
    with pytest.raises(RuntimeFailure, match="UpdateContainerError"):
        await runtime.update(found.id, ResourceUpdate(cpus=type(LOW)([4000])))
    record = json.loads((tmp_path / "state/containers" / found.id / "spec.json").read_text())
    assert (record["spec"]["cpus"], record["previous"]) == (str(LOW), None)
    assert [task.cpus for task in await runtime.allowed(found.id)] == [LOW]
    await runtime.update(found.id, ResourceUpdate(cpus=HIGH))
    assert [task.cpus for task in await runtime.allowed(found.id)] == [HIGH]


async def test_a_caller_who_gives_up_waiting_leaves_a_known_container(runtime):
    start = asyncio.create_task(runtime.start(spec("sleep", "60")))
    await asyncio.sleep(0.01)
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    (found,) = await runtime.containers()
    assert [task.cpus for task in await runtime.allowed(found.id)] == [LOW]


async def test_looking_after_containers_at_any_moment_does_no_harm_to_one_being_started(tmp_path, mode):
    async with opened(tmp_path / "state", mode, sweep_seconds=0) as runtime:
        found = await asyncio.gather(*(runtime.start(spec("sleep", "60", name=f"c{n}")) for n in range(4)))
        await asyncio.sleep(0.1)
        assert [one.state for one in found] == ["running"] * 4
        assert await runtime.containers() == found


async def test_a_stop_that_comes_during_the_start_waits_for_it(runtime):
    start = asyncio.create_task(runtime.start(spec("sleep", "60")))
    await asyncio.sleep(0)
    (known,) = await runtime.containers()
    assert known.state == "created"
    await asyncio.wait_for(runtime.stop(known.id, 5), 120)
    assert (await start).id == known.id
    assert (await status(runtime, known.id)).signal == signal.SIGTERM


def held(step, release):
    """A step of the runtime that waits, for a container called slow, as for a busy kernel."""

    def waiting(runtime, container, *more):
        assert container.stored.spec.name != "slow" or release.wait(120), "it held up the loop"
        return step(runtime, container, *more)

    return waiting


@both_ways
async def test_many_start_and_stop_at_once_while_another_one_is_held_up(runtime, monkeypatch):
    launched, applied = threading.Event(), threading.Event()
    monkeypatch.setattr(LocalRuntime, "_launch", held(LocalRuntime._launch, launched))
    monkeypatch.setattr(LocalRuntime, "_apply", held(LocalRuntime._apply, applied))
    slow = asyncio.create_task(runtime.start(spec("sleep", "60", uid="slow", name="slow")))
    specs = [spec("sleep", "60", uid=f"pod-{n // 3}", name=f"c{n}", cpus=MINE) for n in range(15)]
    found = await asyncio.gather(*map(runtime.start, specs))
    launched.set()
    change = asyncio.create_task(runtime.update((await slow).id, ResourceUpdate(cpus=LOW)))
    await asyncio.gather(*(runtime.update(one.id, ResourceUpdate(cpus=LOW)) for one in found))
    for one in found:
        assert {task.cpus for task in await runtime.allowed(one.id)} == {LOW}
    applied.set()
    await change
    await runtime.stop_all(5)
    assert {one.state for one in await runtime.containers()} == {"exited"}


@both_ways
async def test_a_runtime_whose_opening_is_cancelled_leaves_nothing_and_can_be_opened_at_once(tmp_path, mode):
    for steps in range(12):
        opening = asyncio.create_task(LocalRuntime.open(tmp_path / "state", cgroups=mode))
        for _ in range(steps):
            await asyncio.sleep(0.001)
        opening.cancel()
        with suppress(asyncio.CancelledError):
            await (await opening).close()
    async with opened(tmp_path / "state", mode) as runtime:
        instance = runtime.instance
    assert mode == "off" or not cgroup.find().exists(cgroup.join(instance))


async def test_sweep_removes_logs_of_unknown_pods_only(tmp_path, mode):
    async with opened(tmp_path, mode) as runtime:
        await runtime.start(shell("sleep 1000", uid="runs"))
        for name in ("default_gone_u-1", "default_listed_u-2", "not-a-pod"):
            (tmp_path / "logs" / name / "main").mkdir(parents=True)
        await runtime.sweep({"u-2"})
        left = {path.name for path in (tmp_path / "logs").iterdir()}
        assert left == {"default_listed_u-2", "default_web-0_runs", "not-a-pod"}


@both_ways
async def test_many_containers_are_observed_like_one(runtime):
    """Also ended ones, and an id that there is not."""
    started = [await runtime.start(shell("sleep 60", name=name, cpus=LOW)) for name in "abc"]
    *ids, last = [one.id for one in started]
    await runtime.stop(last, 0)
    found = await runtime.observe_all([*ids, "none", last])
    assert isinstance(found.pop("none"), UnknownContainer)
    assert found == {one: await runtime.observe(one) for one in (*ids, last)}
    assert [found[one].cpus for one in ids] == [LOW, LOW]
