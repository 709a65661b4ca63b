"""Containers outlive corelane's death at any moment; whoever comes next knows them all."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from corelane.embedded.containers.local import LocalRuntime
from corelane.embedded.containers.records import RecordStore, StateInUse
from corelane.kernel import proc
from corelane.runtime.base import ResourceUpdate, RuntimeFailure
from support.containers import (
    HIGH,
    LOW,
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

VICTIM = Path(__file__).parents[2] / "support/runtime_victim.py"


def run(main):
    asyncio.run(asyncio.wait_for(main, 180))


@pytest.fixture
def victim():
    """Starts a runtime in a process of its own."""
    victims = []

    def start(state, mode, *scripts):
        process = subprocess.Popen(
            [sys.executable, str(VICTIM), str(state), mode, *scripts],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        victims.append(process)
        assert process.stdout.readline() == "open\n"
        return process

    yield start
    for process in victims:
        process.kill()
        process.wait()
        process.stdout.close()


def started(process):
    container_id, pid = process.stdout.readline().split()
    return container_id, int(pid)


def killed(process, number=signal.SIGKILL):
    """Killed as a terminal would do it: the whole process group gets the signal."""
    os.killpg(process.pid, number)
    process.wait()


@both_ways
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill", "interrupt"])
async def test_a_container_outlives_corelane_and_is_adopted_with_its_log_and_exit_code(
    tmp_path, mode, victim, number
):
    go = tmp_path / "go"
    process = victim(
        tmp_path / "state", mode, f"echo one; until [ -e {go} ]; do sleep 0.05; done; echo two; exit 9"
    )
    container_id, pid = started(process)
    killed(process, number)
    async with opened(tmp_path / "state", mode) as runtime:
        found = await status(runtime, container_id)
        assert (found.state, found.pid) == ("running", pid)
        assert {task.cpus for task in await runtime.allowed(container_id)} == {LOW}
        go.touch()
        end = await ended(runtime, container_id)
        assert end.exit_code == 9
        assert await output(runtime, container_id) == "one\ntwo\n"


@both_ways
async def test_an_adopted_container_can_be_moved_and_stopped(tmp_path, mode, victim):
    process = victim(tmp_path / "state", mode, "sleep 60 & sleep 60")
    container_id, pid = started(process)
    killed(process)
    async with opened(tmp_path / "state", mode) as runtime:
        await eventually(lambda: len(proc.descendants(pid)) == 2)
        everybody = [pid, *proc.descendants(pid)]
        await runtime.update(container_id, ResourceUpdate(cpus=HIGH))
        assert [(task.pid, task.cpus) for task in await runtime.allowed(container_id)] == [
            (p, HIGH) for p in everybody
        ]
        await runtime.stop(container_id, 5)
        assert not any(map(alive, everybody))
        assert (await status(runtime, container_id)).signal == signal.SIGTERM


@both_ways
async def test_an_end_while_corelane_was_away_is_learned(tmp_path, mode, victim):
    process = victim(tmp_path / "state", mode, "sleep 0.3; exit 7", "kill -9 $$")
    first, pid = started(process)
    second, _ = started(process)
    killed(process)
    deadline = time.monotonic() + 120
    while proc.identity(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    async with opened(tmp_path / "state", mode) as runtime:
        end = await ended(runtime, first)
        assert end.exit_code == 7
        assert 0.3 <= end.finished_at - end.started_at < 10
        assert (await ended(runtime, second)).signal == 9
        await runtime.remove(first)
        assert list((tmp_path / "state/containers").iterdir()) == [tmp_path / "state/containers" / second]


@both_ways
def test_killed_at_any_moment_of_a_start_nothing_is_lost_and_nothing_runs_unknown(tmp_path, mode, victim):
    moments = random.Random(7)
    for _ in range(3):
        process = victim(tmp_path / "state", mode, "endless")
        time.sleep(moments.uniform(0, 0.25))
        killed(process)
        told = [line.split()[0] for line in process.stdout]

        async def main(told=told):
            async with opened(tmp_path / "state", mode) as runtime:
                known = {found.id: found for found in await runtime.containers()}
                assert set(told) <= set(known), "what was reported as started is known"
                assert len(known) <= len(told) + 1
                for container_id in known:
                    tasks = await runtime.allowed(container_id)
                    found = await status(runtime, container_id)
                    assert (found.state, [task.cpus for task in tasks]) == ("running", [LOW]), found
                marks = {
                    container_id: proc.bearing(f"CORELANE_CONTAINER_ID={container_id}")
                    for container_id in known
                }
                assert all(len(pids) == 1 for pids in marks.values())
            assert not any(alive(pid) for pids in marks.values() for pid in pids)

        run(main())
        assert not (tmp_path / "state").exists()


@both_ways
async def test_adopting_former_runs_does_not_harm_those_that_took_their_place(tmp_path, mode):
    state = tmp_path / "state"
    async with opened(state, mode) as runtime:
        running = []
        for name in ("a", "b", "c", "d"):
            await ended(runtime, (await runtime.start(spec("true", name=name))).id)
            running.append((await runtime.start(spec("sleep", "60", name=name, attempt=1))).id)
        await runtime.close()
        async with opened(state, mode) as again:
            await asyncio.sleep(0.1)
            known = {one.id: one for one in await again.containers()}
            assert len(known) == 8
            assert [known[one] for one in running if known[one].state != "running"] == []
            assert all([len(await again.allowed(container_id)) == 1 for container_id in running])


@both_ways
async def test_a_start_that_came_to_nothing_does_not_harm_the_rest_of_its_pod(tmp_path, mode):
    """Its shim is there, but was never told what to do, for corelane was killed first."""
    state = tmp_path / "state"
    async with opened(state, mode) as runtime:
        found = await runtime.start(spec("sleep", "60"))
        await runtime.close()
        record = json.loads((state / "containers" / found.id / "spec.json").read_text())
        record["id"], record["spec"]["name"] = "0" * 32, "other"
        record["group"] = record["group"] and record["group"].removesuffix("main") + "other"
        directory = state / "containers" / record["id"]
        directory.mkdir()
        (directory / "spec.json").write_text(json.dumps(record))
        shim = subprocess.Popen(["flock", str(directory / "lock"), "sleep", "0.3"])
        await eventually(lambda: runtime._state.is_supervised(record["id"]))
        async with opened(state, mode) as again:
            assert shim.wait() == 0
            assert [(one.id, one.state) for one in await again.containers()] == [(found.id, "running")]
            assert [task.pid for task in await again.allowed(found.id)] == [found.pid]
            assert not directory.exists()


def shim_of(state, container_id):
    return json.loads((state / "containers" / container_id / "status.json").read_text())["shim_pid"]


@both_ways
async def test_a_container_whose_shim_is_killed_goes_on_and_its_end_is_not_taken_for_a_success(
    tmp_path, mode
):
    state = tmp_path / "state"
    async with opened(state, mode, sweep_seconds=0.1) as runtime:
        found = await runtime.start(shell("setsid sleep 60 & exec sleep 60"))
        await eventually(lambda: len(proc.descendants(shim_of(state, found.id))) == 2)
        everybody = proc.descendants(shim_of(state, found.id))
        os.kill(shim_of(state, found.id), signal.SIGKILL)

        async def orphaned():
            return "its shim was killed" in (await status(runtime, found.id)).message

        await eventually(orphaned)
        assert (await status(runtime, found.id)).state == "running"
        await runtime.update(found.id, ResourceUpdate(cpus=HIGH))
        assert sorted((task.pid, task.cpus) for task in await runtime.allowed(found.id)) == sorted(
            (pid, HIGH) for pid in everybody
        )
        await runtime.stop(found.id, 5)
        end = await status(runtime, found.id)
        assert (end.state, end.exit_code) == ("exited", 255)
        assert "end not observed" in end.message
        await eventually(lambda: not any(map(alive, everybody)))


async def test_a_shim_that_crashes_leaves_a_trace_beside_its_record(tmp_path):
    state = tmp_path / "state"
    async with opened(state, "off") as runtime:
        found = await runtime.start(shell("exec sleep 60"))
        os.kill(shim_of(state, found.id), signal.SIGSEGV)
        trace = state / "containers" / found.id / "shim.err"

        async def crashed():
            return "in main" in trace.read_text()

        await eventually(crashed)
        assert trace.read_text().startswith("Fatal Python error: Segmentation fault\n")
        await runtime.stop(found.id, 0)


def forge(state, container_id, **fields):
    """A container's record, changed as if history had been another; its shim is gone."""
    os.kill(shim_of(state, container_id), signal.SIGKILL)
    path = state / "containers" / container_id / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


async def test_another_process_with_the_same_pid_is_not_taken_for_the_container(tmp_path):
    state = tmp_path / "state"
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        async with opened(state, "off") as runtime:
            found = await runtime.start(spec("sleep", "60"))
            await runtime.close()
            forge(state, found.id, pid=bystander.pid)
            os.kill(found.pid, signal.SIGKILL)
            async with opened(state, "off") as again:
                end = await ended(again, found.id)
                assert end.exit_code == 255
                await again.signal(found.id, signal.SIGKILL)
                await again.stop(found.id, 0)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_what_ran_before_the_machine_was_restarted_has_ended(tmp_path):
    state = tmp_path / "state"
    async with opened(state, "off") as runtime:
        found = await runtime.start(spec("sleep", "60"))
        await runtime.close()
        forge(state, found.id, boot_id="another")
        os.kill(found.pid, signal.SIGKILL)
        await eventually(lambda: not alive(found.pid))
        async with opened(state, "off") as again:
            end = await ended(again, found.id)
            assert (end.exit_code, end.message) == (255, "the machine was restarted while it ran")


@needs_two_cpus
@both_ways
async def test_a_change_cut_short_by_a_crash_is_finished_by_the_next(tmp_path, mode):
    state = tmp_path / "state"
    async with opened(state, mode) as runtime:
        found = await runtime.start(shell("sleep 60 & exec sleep 60"))
        await eventually(lambda: len(proc.descendants(found.pid)) == 1)
        await runtime.close()
        path = state / "containers" / found.id / "spec.json"
        record = msgspec.json.decode(path.read_bytes())
        record["spec"]["cpus"], record["previous"] = str(HIGH), str(LOW)
        path.write_bytes(msgspec.json.encode(record))
        async with opened(state, mode, sweep_seconds=60) as again:
            assert [task.cpus for task in await again.allowed(found.id)] == [HIGH, HIGH]
            assert msgspec.json.decode(path.read_bytes())["previous"] is None


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b'{"version": 1}'], ids=["none", "empty", "torn", "foreign"]
)
async def test_a_record_that_is_no_use_does_not_keep_the_others_from_being_adopted(tmp_path, content):
    state = tmp_path / "state"
    async with opened(state, "off") as runtime:
        found = await runtime.start(spec("sleep", "60"))
        await runtime.close()
        broken = state / "containers" / "broken"
        broken.mkdir()
        if content is not None:
            (broken / "spec.json").write_bytes(content)
        async with opened(state, "off") as again:
            assert [one.id for one in await again.containers()] == [found.id]
            assert not broken.exists()


def test_files_left_half_written_are_removed_but_not_those_that_are_being_written(tmp_path):
    container = tmp_path / "containers" / "a1"
    container.mkdir(parents=True)
    ours = [tmp_path / ".instance.x9.tmp", container / ".spec.json.x9.tmp"]
    of_shim = container / "status.json.tmp"
    for path in (*ours, of_shim):
        path.write_text("{")
    RecordStore(tmp_path).close()
    assert not any(path.exists() for path in ours)
    assert of_shim.exists()
    os.utime(of_shim, (time.time() - 3600,) * 2)
    RecordStore(tmp_path).close()
    assert not of_shim.exists()


async def test_a_state_directory_has_one_owner_at_a_time(runtime, tmp_path):
    with pytest.raises(StateInUse, match=r"state: another corelane uses this directory"):
        await LocalRuntime.open(tmp_path / "state", cgroups="off")
    await runtime.close()
    again = await LocalRuntime.open(tmp_path / "state", cgroups="off")
    assert again.instance == runtime.instance
    await again.close()


async def test_a_shim_that_cannot_even_begin_is_a_failed_start(tmp_path, monkeypatch):
    monkeypatch.setattr("corelane.embedded.containers.shim.COMMAND", "raise SystemExit('out of luck')")
    async with opened(tmp_path / "state", "off") as runtime:
        with pytest.raises(RuntimeFailure, match="RunContainerError: out of luck"):
            await runtime.start(spec("true"))
        assert await runtime.containers() == []


async def test_a_shim_is_light(runtime, tmp_path):
    found = await runtime.start(spec("sleep", "60"))
    shim = shim_of(tmp_path / "state", found.id)
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{shim}/status").read_text().splitlines())
    assert int(fields["RssAnon"].split()[0]) < 6 * 1024, "what it has for itself, in kB"
    assert int(fields["VmRSS"].split()[0]) < 16 * 1024
    assert fields["Threads"].strip() == "1"
    assert fields["Name"].strip() == "corelane-shim"
    kept = [
        Path(f"/proc/{shim}/fd/{fd}").readlink().name
        for fd in sorted(entry.name for entry in Path(f"/proc/{shim}/fd").iterdir())
    ]
    assert len(kept) == 9, f"stdio, lock, log, two pipes, and a pipe for signals: {kept}"
