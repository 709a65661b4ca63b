"""A state directory on a disk that is full or read-only, on real mounts: shown, and no container is moved."""

import subprocess
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from corelane.agent import event_loop, saved_state
from corelane.app.agent import status as app
from corelane.kube import keys
from corelane.kube.meta import condition
from corelane.kube.objects import Node
from support.cluster_lab import events, until
from support.node_lab import in_lab, source, with_lab


@contextmanager
def small_disk(path: Path):
    """A tmpfs of 64 KiB; skips the test where none may be mounted."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "corelane-test", path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs to mount a tmpfs: {done.stderr.strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


@contextmanager
def read_only(path: Path):
    """The directory is mounted read-only over itself; files that are open stay so, as after an I/O error."""
    subprocess.run(["mount", "--bind", path, path], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(path: Path) -> Path:
    """Fill the disk to the last block."""
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            return filler
    raise AssertionError("the disk is larger than it should be")


async def ledger_condition(lab, status: str) -> str:
    """The message of the Node's condition, once it has this status."""

    async def there():
        node = await lab.client.get(Node, "here")
        found = condition(node.status.conditions, keys.LEDGER_WRITABLE)
        return found if found and found.status == status else None

    return (await until(there, 60)).message


async def is_shown(lab, agent, why: str) -> None:
    """Status, condition and event all say why the ledger cannot be written, and where."""
    fault = await lab.until(lambda: agent.status()["ledger"]["fault"])
    path = str(agent.settings.state_dir / saved_state.LEDGER_FILE)
    texts = [fault, await ledger_condition(lab, "False")]
    texts += [text for reason, text in await events(lab.client, "here") if reason == "LedgerUnwritable"]
    assert len(texts) >= 3
    for text in texts:
        assert path in text
        assert why in text


@pytest.fixture(autouse=True)
def short_retries(monkeypatch):
    monkeypatch.setattr("corelane.agent.event_loop.LONGEST_RETRY", 0.2)


def test_a_full_disk_is_shown_and_moves_no_container_until_there_is_room(tmp_path):
    with small_disk(tmp_path / "disk") as disk:

        async def scene(lab):
            filler = fill(disk)
            server = lab.run("server", "2")
            async with lab.working(state_dir=disk) as agent:
                await is_shown(lab, agent, "No space left on device")
                await lab.until(lambda: agent.status()["ledger"]["held"])
                assert len(lab.cpus(server)) == 8
                filler.unlink()
                await lab.until(lambda: len(lab.cpus(server)) == 2)
                assert await ledger_condition(lab, "True")
                assert agent.status()["ledger"]["fault"] == ""

        with_lab(tmp_path, scene)


def test_a_directory_that_turns_read_only_is_shown_over_a_restart_and_pinned_containers_stay(tmp_path):
    with small_disk(tmp_path / "disk") as disk:

        async def scene(lab):
            server = lab.run("server", "2")
            with ExitStack() as broken:
                async with lab.working(state_dir=disk) as agent:
                    await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
                    own = lab.cpus(server)
                    broken.enter_context(read_only(disk))
                    late = lab.run("late", "2")
                    await is_shown(lab, agent, "Read-only file system")
                    assert (lab.cpus(server), len(lab.cpus(late))) == (own, 8)
                async with lab.working(state_dir=disk) as agent:
                    await is_shown(lab, agent, "Read-only file system")
                    socket = await lab.until(
                        lambda: (one := source(agent, "status socket"))["state"] == "failing" and one
                    )
                    assert "Read-only file system" in socket["error"]
                    assert "acts, but has no agent.sock" in app.read(disk)["fault"]
                    assert (lab.cpus(server), len(lab.cpus(late))) == (own, 8)
                    broken.close()
                    await lab.until(lambda: len(lab.cpus(late)) == 2)
                    assert lab.cpus(server) == own
                    assert await ledger_condition(lab, "True")
                    await lab.until(lambda: source(agent, "status socket")["state"] == "ok")

        with_lab(tmp_path, scene)


@in_lab()
async def test_a_disk_that_does_not_answer_at_the_start_holds_up_moves_alone(lab, monkeypatch):
    """The ledger and the settings are both being written when it hangs."""
    monkeypatch.setattr(event_loop, "SAVE_SECONDS", 0.2)
    answers, write = threading.Event(), saved_state.files.write_atomic

    def hangs(path, *content, **how):
        if path.parent == lab.path / "state":
            answers.wait(120)
        write(path, *content, **how)

    monkeypatch.setattr(saved_state.files, "write_atomic", hangs)
    server = lab.run("server", "2")
    try:
        async with lab.working() as agent:
            assert "has not ended" in await ledger_condition(lab, "False")
            assert any("has not ended" in line for line in lab.reporter.lines)
            assert "LedgerUnwritable" in [reason for reason, _ in await events(lab.client, "here")]
            await lab.until(lambda: agent.lease.held and agent.status()["ledger"]["held"])
            assert len(lab.cpus(server)) == 8
            answers.set()
            await lab.until(lambda: len(lab.cpus(server)) == 2)
            await ledger_condition(lab, "True")
            await lab.until((lab.path / "state" / saved_state.SETTINGS_FILE).exists)
            assert agent.status()["ledger"]["held"] == 0
    finally:
        answers.set()


@in_lab()
async def test_what_waited_for_the_ledger_is_not_written_once_the_mode_forbids_it(lab, monkeypatch) -> None:
    """A kubelet that became static meanwhile may give these CPUs to another container."""
    monkeypatch.setattr(event_loop, "LONGEST_RETRY", 0.2)

    async with lab.working() as agent:
        await lab.until(agent.may_write)
        write, agent.files.save_ledger = agent.files.save_ledger, full_disk
        server = lab.run("server", "2")
        await lab.until(lambda: agent.status()["ledger"]["held"])
        before = lab.cpus(server)
        lab.kubelet.configuration["cpuManagerPolicy"] = "static"
        await lab.until(lambda: not agent.may_write())
        agent.files.save_ledger = write
        await lab.until(lambda: not agent.status()["ledger"]["held"])
        assert (lab.cpus(server), lab.node.updates) == (before, [])


async def full_disk(_ledger) -> str:
    return "disk full"
