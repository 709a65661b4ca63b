"""Credentials that are rotated while requests go on: kubeconfigs and token files are read again."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from corelane.kube import connection
from corelane.kube.client import APIError, KubeClient, Unreachable
from corelane.kube.kubeconfig import ClusterForm, ServerConfig, UserForm, tls_context
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from support.certificates import Authority
from support.fake_api import answer, event, failure, pod, serving, watching

NODE = "/api/v1/nodes/n"
FOUND = answer({"metadata": {"name": "n"}})


@pytest.fixture(autouse=True)
def _look_always(monkeypatch):
    monkeypatch.setattr(connection, "_CHECK_SECONDS", 0.0)


def kubeconfig(path: Path, url: str, user: str) -> Path:
    path.with_suffix(".new").write_text(
        f"""
current-context: c
clusters: [{{name: c, cluster: {{server: "{url}"}}}}]
users: [{{name: u, user: {user}}}]
contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
"""
    )
    return path.with_suffix(".new").replace(path)


def story(body):
    async def main():
        async with asyncio.timeout(120), serving() as (fake, _):
            await body(fake)

    asyncio.run(main())


def sent(fake):
    return [request.headers.get("Authorization") for request in fake.seen]


def test_a_changed_kubeconfig_is_read_before_the_next_request(tmp_path):
    async def body(fake):
        fake.script[NODE] = [FOUND]
        file = kubeconfig(tmp_path / "config", fake.url, "{token: old}")
        client = KubeClient.connect(file)
        await client.get(Node, "n")
        kubeconfig(file, fake.url, "{token: new}")
        await client.get(Node, "n")
        await client.close()
        assert sent(fake) == ["Bearer old", "Bearer new"]

    story(body)


def test_a_token_that_changes_during_a_request_is_read_again_on_401(tmp_path):
    async def body(fake):
        file = kubeconfig(tmp_path / "config", fake.url, "{token: old}")

        async def refuse(request):
            kubeconfig(file, fake.url, "{token: new}")
            return await failure(401, "Unauthorized", "Unauthorized")(request)

        fake.script[NODE] = [refuse, FOUND]
        client = KubeClient.connect(file)
        await client.get(Node, "n")
        await client.close()
        assert sent(fake) == ["Bearer old", "Bearer new"]

    story(body)


def test_an_unchanged_token_is_not_tried_twice(tmp_path):
    async def body(fake):
        fake.script[NODE] = [failure(401, "Unauthorized", "Unauthorized")]
        client = KubeClient.connect(kubeconfig(tmp_path / "config", fake.url, "{token: old}"))
        with pytest.raises(APIError) as caught:
            await client.get(Node, "n")
        await client.close()
        assert caught.value.code == 401
        assert sent(fake) == ["Bearer old"]

    story(body)


def test_a_token_file_is_read_again_when_it_changes(tmp_path):
    async def body(fake):
        fake.script[NODE] = [FOUND]
        (tmp_path / "token").write_text("old")
        client = KubeClient.connect(kubeconfig(tmp_path / "config", fake.url, "{tokenFile: token}"))
        await client.get(Node, "n")
        (tmp_path / "token").write_text("newer")
        await client.get(Node, "n")
        await client.close()
        assert sent(fake) == ["Bearer old", "Bearer newer"]

    story(body)


def test_a_token_file_that_disappears_is_an_error_of_the_request_only(tmp_path):
    async def body(fake):
        fake.script[NODE] = [FOUND]
        token = tmp_path / "token"
        token.write_text("old")
        client = KubeClient.connect(kubeconfig(tmp_path / "config", fake.url, f"{{tokenFile: {token}}}"))
        token.unlink()
        with pytest.raises(Unreachable, match="credentials for the API server"):
            await client.get(Node, "n")
        with pytest.raises(Unreachable, match="credentials for the API server"):
            async for _ in client.watch(Pod, resource_version="1"):
                pass
        token.write_text("back")
        await client.get(Node, "n")
        await client.close()

    story(body)


def test_a_damaged_kubeconfig_changes_nothing(tmp_path):
    async def body(fake):
        fake.script[NODE] = [FOUND]
        file = kubeconfig(tmp_path / "config", fake.url, "{token: old}")
        client = KubeClient.connect(file)
        file.write_text("{")
        await client.get(Node, "n")
        file.unlink()
        await client.get(Node, "n")
        await client.close()
        assert sent(fake) == ["Bearer old", "Bearer old"]

    story(body)


def test_a_watch_outlives_a_change_of_credentials(tmp_path):
    async def body(fake):
        more = asyncio.Event()

        async def respond(request):
            response = await watching(event("ADDED", pod("a")), then="end")(request)
            await more.wait()
            await response.write(event("ADDED", pod("b")))
            return response

        fake.script["/api/v1/pods?watch"] = [respond]
        fake.script[NODE] = [FOUND]
        file = kubeconfig(tmp_path / "config", fake.url, "{token: old}")
        client = KubeClient.connect(file)
        events = client.watch(Pod, resource_version="1")
        assert (await anext(events)).object.metadata.name == "a"
        kubeconfig(file, fake.url, "{token: new}")
        await client.get(Node, "n")
        more.set()
        assert (await anext(events)).object.metadata.name == "b"
        await events.aclose()
        await client.close()

    story(body)


def test_the_files_of_credentials_are_looked_at_once_a_second_at_most(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(connection, "_CHECK_SECONDS", 3600.0)
    monkeypatch.setattr(connection, "_versions", lambda files: looks.append(files) or ())

    async def body(fake):
        fake.script[NODE] = [FOUND]
        client = KubeClient.connect(kubeconfig(tmp_path / "config", fake.url, "{token: old}"))
        looks.clear()
        for _ in range(20):
            await client.get(Node, "n")
        await client.close()
        assert looks == []

    story(body)


def test_a_proxy_of_the_environment_is_looked_up_once_and_not_for_loopback(tmp_path, monkeypatch):
    async def body(fake):
        fake.script["/api/v1/nodes/n"] = [FOUND]
        monkeypatch.setenv("http_proxy", fake.url)
        client = KubeClient.connect_to("http://api.example:8080")
        monkeypatch.delenv("http_proxy")
        for _ in range(2):
            await client.get(Node, "n")
        await client.close()
        assert [request.headers["Host"] for request in fake.seen] == ["api.example:8080"] * 2
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        client = KubeClient.connect_to(fake.url)
        await client.get(Node, "n")
        await client.close()

    story(body)


def test_a_token_needs_no_directory_to_write_to(tmp_path, monkeypatch):
    """As in a container whose root file system is read-only."""
    authority = Authority.make().write(tmp_path / "ca.crt")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    cluster = ClusterForm(server="https://127.0.0.1:1", certificate_authority=str(authority))
    assert tls_context(ServerConfig(cluster, UserForm(token="t"))) is not None
