"""Credentials that are rotated while requests go on: kubeconfigs and token files are read again."""

import asyncio
from pathlib import Path

import pytest

from corelane.kube.client import APIError, KubeClient, Unreachable
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from support.fake_api import answer, event, failure, pod, serving, watching

NODE = "/api/v1/nodes/n"
FOUND = answer({"metadata": {"name": "n"}})


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
        async with asyncio.timeout(30), serving() as (fake, _):
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
