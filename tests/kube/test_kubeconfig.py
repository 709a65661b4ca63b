"""Kubeconfigs with every kind of credentials, at a server with real TLS."""

import asyncio
import base64
import json
import pwd
import stat

import pytest

from corelane.kube import kubeconfig
from corelane.kube.client import APIError, KubeClient, NoCluster, Unreachable
from corelane.kube.kubeconfig import Authorization
from support import kubelet_server
from support.certificates import Authority
from support.kubelet_server import FakeKubelet

PATH = "/pods"


@pytest.fixture
def authority():
    return Authority.make()


def asked(tmp_path, authority, user, cluster=None, then=None, names=("127.0.0.1",)):
    """Ask a server that knows the token `secret` and certificates of `authority`, as this user."""

    async def main():
        pair = authority.issue(tmp_path / "server.pem", "server", *names)
        fake = FakeKubelet(tokens={"secret"})
        async with asyncio.timeout(180), kubelet_server.serving(fake, pair, authority) as server:
            file = write(tmp_path, server.url, user, cluster or {"certificate-authority": "ca.pem"})
            client = KubeClient.connect(file)
            try:
                await client.raw("GET", PATH)
                if then:
                    await then(fake, client)
            finally:
                await client.close()

    authority.write(tmp_path / "ca.pem")
    asyncio.run(main())


def write(tmp_path, url, user, cluster):
    config = {
        "clusters": [{"name": "c", "cluster": {"server": url} | cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return path


def encoded(path):
    return base64.b64encode(path.read_bytes()).decode()


def test_a_certificate_and_its_key_authenticate_as_files_and_as_data(tmp_path, authority):
    pair = authority.issue(tmp_path / "user.pem", "user")
    asked(tmp_path, authority, {"client-certificate": "user.pem", "client-key": str(pair)})
    asked(tmp_path, authority, {"client-certificate": "user.pem"})
    data = {"client-certificate-data": encoded(pair), "client-key-data": encoded(pair)}
    asked(tmp_path, authority, data)


def test_the_authority_is_checked_as_a_file_and_as_data(tmp_path, authority):
    user = {"token": "secret"}
    data = {"certificate-authority-data": encoded(authority.write(tmp_path / "ca.pem"))}
    asked(tmp_path, authority, user, data)
    other = {"certificate-authority": str(Authority.make().write(tmp_path / "other.pem"))}
    with pytest.raises(Unreachable, match="certificate verify failed"):
        asked(tmp_path, authority, user, other)
    with pytest.raises(Unreachable, match="certificate verify failed"):
        asked(tmp_path, authority, user, {"tls-server-name": ""})
    asked(tmp_path, authority, user, {"insecure-skip-tls-verify": True})


def test_the_servers_name_may_be_another_than_in_its_address(tmp_path, authority):
    named = {"certificate-authority": "ca.pem", "tls-server-name": "api.example"}
    asked(tmp_path, authority, {"token": "secret"}, named, names=("api.example",))
    with pytest.raises(Unreachable, match="certificate verify failed"):
        asked(tmp_path, authority, {"token": "secret"}, names=("api.example",))


def plugin(tmp_path, script):
    program = tmp_path / "plugin"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./plugin", "args": ["token"]}
    }


def test_a_plugins_token_is_kept_until_the_server_refuses_it(tmp_path, authority):
    user = plugin(
        tmp_path,
        f'echo "$1" >> {tmp_path}/runs\n'
        f'printf \'{{"kind": "ExecCredential", "status": {{"token": "%s"}}}}\' "$(cat {tmp_path}/token)"',
    )
    (tmp_path / "token").write_text("secret")

    async def then(fake, client):
        await client.raw("GET", PATH)
        assert (tmp_path / "runs").read_text() == "token\n"
        fake.tokens = {"newer"}
        (tmp_path / "token").write_text("newer")
        await client.raw("GET", PATH)
        assert (tmp_path / "runs").read_text() == "token\ntoken\n"
        fake.tokens = set()
        with pytest.raises(APIError) as caught:
            await client.raw("GET", PATH)
        assert caught.value.code == 401

    asked(tmp_path, authority, user, then=then)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no such account >&2; exit 3", r"exec .*/plugin: exit code 3: no such account"),
        ("echo hello", "not an ExecCredential with a token"),
        ("echo '{}'", "not an ExecCredential with a token"),
    ],
)
def test_a_plugin_that_fails_is_an_error_of_the_request(tmp_path, authority, script, why):
    with pytest.raises(Unreachable, match=f"credentials for the API server: .*{why}"):
        asked(tmp_path, authority, plugin(tmp_path, script))


def test_a_missing_plugin_or_an_unknown_version_is_named(tmp_path, authority):
    missing = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "no-such-plugin"}}
    with pytest.raises(Unreachable, match="no-such-plugin"):
        asked(tmp_path, authority, missing)
    old = {"exec": {"apiVersion": "client.authentication.k8s.io/v0", "command": "x"}}
    with pytest.raises(Unreachable, match="v0' is not supported"):
        asked(tmp_path, authority, old)


def test_a_user_name_and_a_password_are_sent():
    user = kubeconfig.UserForm(username="a", password="b")
    authorization = Authorization(kubeconfig.ServerConfig(kubeconfig.ClusterForm(), user))
    assert asyncio.run(authorization.headers()) == {"Authorization": "Basic YTpi"}


@pytest.mark.parametrize(
    ("user", "why"),
    [
        ({"client-certificate-data": "&&&"}, "client-certificate-data: not base64"),
        ({"client-certificate": "none.pem"}, "No such file"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider is not supported"),
        ({"token": 3}, "not a kubeconfig"),
    ],
)
def test_unusable_credentials_are_named_when_connecting(tmp_path, user, why):
    file = write(tmp_path, "https://127.0.0.1:1", user, {})
    with pytest.raises(NoCluster, match=why):
        KubeClient.connect(file)


def test_a_service_account_is_used_in_a_pod(tmp_path, monkeypatch, authority):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    authority.write(tmp_path / "ca.crt")
    (tmp_path / "token").write_text("secret")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    config = kubeconfig.load()
    assert config.cluster.server == "https://[fd00::1]:6443"
    assert config.files == (tmp_path / "ca.crt", tmp_path / "token")


def test_a_service_account_is_used_by_a_user_without_a_home_directory(tmp_path, monkeypatch):
    """Of a container that runs as a number: neither $HOME nor an entry in /etc/passwd."""

    def unknown(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("secret")
    monkeypatch.setattr(kubeconfig, "SERVICE_ACCOUNT", tmp_path)
    assert kubeconfig.load().cluster.server == "https://10.0.0.1:443"


def test_files_are_merged_as_kubectl_merges_them(tmp_path, monkeypatch, authority):
    """Contexts, clusters and users may each be in another file; of one name the first counts."""
    for name, content in {
        "a/contexts": {"contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}]},
        "b/users": {"users": [{"name": "u", "user": {"tokenFile": "token"}}], "current-context": "x"},
        "c/clusters": {
            "clusters": [{"name": "c", "cluster": {"server": "https://c", "certificate-authority": "ca"}}],
            "users": [{"name": "u", "user": {"token": "later"}}],
            "current-context": "y",
        },
    }.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(json.dumps(content))
    paths = tuple(tmp_path / name for name in ("a/contexts", "b/users", "c/clusters"))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))
    config = kubeconfig.load()
    assert (config.cluster.server, config.user.token) == ("https://c", None)
    assert config.files == (*paths, tmp_path / "c/ca", tmp_path / "b/token")
