"""`corelane up` with an API server that has lost its data: what runs stays, and its pods are there again."""

from __future__ import annotations

import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from support.up import FOREVER, Up, clear, container, is_alive, pod, up
from support.up_pods import pids, ready

WEB = pod("web", container("c", FOREVER, "100m"), restartPolicy="OnFailure")
WEB["metadata"] |= {"labels": {"app": "web"}, "annotations": {"team": "payments"}}
PAIR = pod("pair", container("a", FOREVER), container("b", FOREVER))
ARGS = ("--node-name", "here", "--cgroups", "auto")


async def create(client: KubeClient, *manifests: dict[str, Any]) -> None:
    for manifest in manifests:
        await client.create(manifest)


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[tuple[Path, dict[str, int], dict[str, str]]]:
    """A data directory whose corelane was killed, its running pods' main processes, and the pods' UIDs."""
    data = tmp_path / "data"
    try:
        with_pods = Up(data, *ARGS)
        with_pods.call(lambda client: create(client, WEB, PAIR))
        ready(with_pods, "web", "pair")
        found = pids(data)
        uids = with_pods.call(_uids)
        with_pods.kill()
        yield data, found, uids
    finally:
        clear(data)


async def _uids(client: KubeClient) -> dict[str, str]:
    return {one.metadata.name: one.metadata.uid for one in (await client.list(Pod)).items}


async def _pods(client: KubeClient) -> dict[str, Pod]:
    return {one.metadata.name: one for one in (await client.list(Pod)).items}


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _emptied_tables(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM revision")
    db.close()


@pytest.mark.parametrize("loss", [Path.unlink, _empty, _emptied_tables])
def test_api_without_data_leaves_every_process_and_has_the_pods_again(
    stopped: tuple[Path, dict[str, int], dict[str, str]], loss: Callable[[Path], None]
) -> None:
    data, before, uids = stopped
    if loss is not _emptied_tables:
        for log in data.glob("apiserver.db-*"):
            log.unlink()
    loss(data / "apiserver.db")
    again = Up(data, *ARGS)
    try:
        ready(again, "web", "pair")
        assert pids(data) == before
        assert all(map(is_alive, before.values()))
        assert again.call(_uids) == uids
        web = again.call(_pods)["web"]
        assert web.metadata.labels == {"app": "web"}
        assert web.metadata.annotations["team"] == "payments"
        assert web.spec.restart_policy == "OnFailure"
        assert web.spec.termination_grace_period_seconds == 1
        assert "2 pods" in again.output
        again.call(lambda client: client.delete(Pod, "web", namespace="default"))
        again.until(lambda client: _lacks(client, "web"), "web is deleted")
        assert not is_alive(before["web/c"])
        assert is_alive(before["pair/a"])
    finally:
        again.kill()


async def _lacks(client: KubeClient, name: str) -> bool:
    return name not in await _pods(client)


def test_older_copy_of_the_data_keeps_the_pods_made_since(tmp_path: Path) -> None:
    data = tmp_path / "data"
    try:
        first = Up(data, *ARGS)
        first.stop()
        copy = shutil.copy(data / "apiserver.db", tmp_path / "copy.db")
        second = Up(data, *ARGS)
        second.call(lambda client: create(client, WEB))
        ready(second, "web")
        before = pids(data)
        second.stop()
        shutil.copy(copy, data / "apiserver.db")
        third = Up(data, *ARGS)
        ready(third, "web")
        assert pids(data) == before
        third.kill()
    finally:
        clear(data)


def test_forgotten_pod_whose_end_was_cut_short_ends_at_the_next_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    try:
        with_pod = Up(data, *ARGS)
        slow = pod("slow", container("c", "trap 'sleep 4; exit 0' TERM; while :; do sleep 0.1; done"))
        slow["spec"]["terminationGracePeriodSeconds"] = 20
        with_pod.call(lambda client: create(client, slow))
        ready(with_pod, "slow")
        before = pids(data)
        with_pod.stop()
        for path in data.glob("apiserver.db*"):
            path.unlink()
        Up(data, *ARGS, "--forget-pods").kill()
        assert all(map(is_alive, before.values()))
        last = Up(data, *ARGS)
        assert last.call(_pods) == {}
        last.until(lambda _: _all_ended(before), "the process ends")
        last.kill()
    finally:
        clear(data)


async def _all_ended(found: dict[str, int]) -> bool:
    return not any(map(is_alive, found.values()))


def test_deletion_that_the_server_has_recorded_is_carried_out_by_the_next_start(tmp_path: Path) -> None:
    """Not doubt: the history has the deletion, which the killed agent could not carry out any more."""
    with up(tmp_path / "data", *ARGS) as first:
        first.call(lambda client: create(client, WEB))
        ready(first, "web")
        before = pids(first.data_dir)
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        uid = _delete_in_store(first.data_dir / "apiserver.db")
        assert uid
        again = Up(first.data_dir, *ARGS)
        try:
            again.until(lambda _: _all_ended(before), "the deleted pod's process ends")
            assert again.call(_pods) == {}
        finally:
            again.kill()


def _delete_in_store(path: Path) -> str:
    from corelane.embedded.apiserver.store.database import Store
    from corelane.embedded.apiserver.store.server_backend import describe

    store = Store(path, describe)
    (record,) = store.find("pods")
    store.delete("pods", record.key)
    store.close()
    return str(record.object()["metadata"]["uid"])
