"""Requests to a kubelet over real TLS: authentication, trust, faults with their remedy, and cheap polling."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from corelane.kube.kubelet import KubeletAccess, KubeletClient, KubeletError
from corelane.kube.pod import Pod
from corelane.reasons import Code
from support import kubelet_server
from support.certificates import Authority, self_signed
from support.kubelet_server import FakeKubelet, pod


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.make()


@pytest.fixture
def server(authority: Authority, tmp_path: Path) -> tuple[Path, Path]:
    """The kubelet's certificate with its key, and its authority's."""
    pair = authority.issue(tmp_path / "kubelet.pem", "node", "127.0.0.1", "node-1")
    return pair, authority.write(tmp_path / "ca.crt")


def asking(kubelet, server, body, *, clients=None, seconds=5.0, **access):
    pair, ca = server

    async def scenario():
        async with kubelet_server.serving(kubelet, pair, clients):
            client = KubeletClient(
                KubeletAccess(kubelet.url, **({"ca_file": ca} | access)),
                Pod,
                seconds=seconds,
            )
            try:
                return await body(client)
            finally:
                await client.close()

    return asyncio.run(scenario())


def failing(kubelet, server, call=lambda client: client.pods(), **options):
    async def body(client):
        with pytest.raises(KubeletError) as caught:
            await call(client)
        return caught.value

    return asking(kubelet, server, body, **options)


def names(listing):
    return [pod.metadata.name for pod in listing.items]


def test_pods_are_listed_with_a_bearer_token(server):
    kubelet = FakeKubelet(tokens={"secret"}, pods=[pod("b"), pod("a")])
    listing = asking(kubelet, server, lambda client: client.pods(), token="secret")
    assert names(listing) == ["a", "b"]


def test_pods_are_listed_with_a_client_certificate(server, authority, tmp_path):
    pair = authority.issue(tmp_path / "client.pem", "agent")
    kubelet = FakeKubelet(pods=[pod("a")])
    listing = asking(kubelet, server, lambda client: client.pods(), clients=authority, certificate_file=pair)
    assert names(listing) == ["a"]


def test_pods_are_listed_with_a_service_account_whose_token_is_rotated(server, tmp_path):
    pair, ca = server
    account = tmp_path / "serviceaccount"
    account.mkdir()
    (account / "ca.crt").write_bytes(ca.read_bytes())
    (account / "token").write_text("first\n")
    kubelet = FakeKubelet(tokens={"first"}, pods=[pod("a")])

    async def scenario():
        async with kubelet_server.serving(kubelet, pair):
            access = KubeletAccess(kubelet.url, ca_file=account / "ca.crt", token_file=account / "token")
            client = KubeletClient(access, Pod)
            assert names(await client.pods()) == ["a"]
            kubelet.tokens = {"second"}
            with pytest.raises(KubeletError) as caught:
                await client.pods()
            (tmp_path / "new").write_text("second\n")
            (tmp_path / "new").replace(account / "token")
            listing = await client.pods()
            await client.close()
            return caught.value, listing

    error, listing = asyncio.run(scenario())
    assert error.reason.code is Code.KUBELET_UNAUTHORIZED
    assert names(listing) == ["a"]


def test_a_token_that_changed_since_the_request_is_read_again_on_401(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    kubelet = FakeKubelet(tokens={"new"}, pods=[pod("a")])

    async def answer_after_rotation(request):
        if request.headers["Authorization"] == "Bearer old":
            token.write_text("new one")
            kubelet.tokens = {"new one"}
        return await FakeKubelet.answer(kubelet, request)

    kubelet.answer = answer_after_rotation
    listing = asking(kubelet, server, lambda client: client.pods(), token_file=token)
    assert names(listing) == ["a"]
    assert kubelet.seen == ["/pods", "/pods"]


def test_401_names_the_ways_to_authenticate(server):
    error = failing(FakeKubelet(tokens={"x"}), server, token="wrong")
    assert error.reason.code is Code.KUBELET_UNAUTHORIZED
    assert "401 Unauthorized; give a client certificate" in str(error)


@pytest.mark.parametrize(
    ("path", "call", "resource"),
    [
        ("/pods", lambda client: client.pods(), "nodes/pods"),
        ("/configz", lambda client: client.configuration(), "nodes/configz"),
    ],
)
def test_403_names_the_permission_that_is_missing(server, path, call, resource):
    error = failing(FakeKubelet(tokens={"t"}, faults={path: 403}), server, call, token="t")
    assert error.reason.code is Code.KUBELET_FORBIDDEN
    assert f"get on {resource}" in str(error)
    assert "nodes/proxy for older kubelets" in str(error)


@pytest.mark.parametrize(("status", "code"), [(500, Code.KUBELET_FAILED), (404, Code.KUBELET_ENDPOINT_OFF)])
def test_other_statuses_are_reported_as_they_are(server, status, code):
    error = failing(FakeKubelet(tokens={"t"}, faults={"/pods": status}), server, token="t")
    assert error.reason.code is code
    assert str(status) in str(error)


def test_a_slow_kubelet_is_given_up_at_the_deadline(server):
    error = failing(FakeKubelet(tokens={"t"}, slow=30.0), server, token="t", seconds=0.3)
    assert error.reason.code is Code.KUBELET_SLOW


def test_a_kubelet_that_does_not_listen_is_reported(server):
    kubelet = FakeKubelet()
    access = KubeletAccess("https://127.0.0.1:1", ca_file=server[1], token="t")

    async def body(client):
        other = KubeletClient(access, Pod)
        with pytest.raises(KubeletError) as caught:
            await other.pods()
        await other.close()
        return caught.value

    error = asking(kubelet, server, body)
    assert error.reason.code is Code.KUBELET_UNREACHABLE


def test_a_self_signed_certificate_names_the_ways_to_trust_it(server, tmp_path):
    own = self_signed(tmp_path / "own.pem", "node", "127.0.0.1")
    error = failing(FakeKubelet(tokens={"t"}), (own, server[1]), token="t")
    assert error.reason.code is Code.KUBELET_CERTIFICATE_UNTRUSTED
    assert "kubelet.caFile (/var/lib/kubelet/pki/kubelet.crt" in str(error)


def test_a_certificate_of_another_authority_of_the_same_name_is_not_trusted(server, tmp_path):
    other = Authority.make().write(tmp_path / "other.crt")
    error = failing(FakeKubelet(tokens={"t"}), (server[0], other), token="t")
    assert error.reason.code is Code.KUBELET_CERTIFICATE_UNTRUSTED


def test_a_self_signed_certificate_is_trusted_as_its_own_authority(tmp_path):
    own = self_signed(tmp_path / "own.pem", "node", "127.0.0.1")
    listing = asking(FakeKubelet(tokens={"t"}, pods=[pod("a")]), (own, own), lambda c: c.pods(), token="t")
    assert names(listing) == ["a"]


def test_the_check_of_the_certificate_can_be_skipped_explicitly(server, tmp_path):
    own = self_signed(tmp_path / "own.pem", "node", "elsewhere")
    kubelet = FakeKubelet(tokens={"t"}, pods=[pod("a")])
    listing = asking(kubelet, (own, server[1]), lambda c: c.pods(), token="t", insecure=True)
    assert names(listing) == ["a"]


def test_a_certificate_for_another_name_needs_that_name(authority, server, tmp_path):
    pair = authority.issue(tmp_path / "named.pem", "node", "node-1")
    kubelet = FakeKubelet(tokens={"t"}, pods=[pod("a")])
    error = failing(kubelet, (pair, server[1]), token="t")
    assert error.reason.code is Code.KUBELET_CERTIFICATE_NAME
    listing = asking(kubelet, (pair, server[1]), lambda c: c.pods(), token="t", server_name="node-1")
    assert names(listing) == ["a"]


def test_an_expired_certificate_is_reported_as_such(authority, server, tmp_path):
    pair = authority.issue(tmp_path / "late.pem", "node", "127.0.0.1", days=-1)
    error = failing(FakeKubelet(tokens={"t"}), (pair, server[1]), token="t")
    assert error.reason.code is Code.KUBELET_CERTIFICATE_INVALID
    assert "expired" in str(error)


@pytest.mark.parametrize("member", ["ca_file", "certificate_file", "token_file"])
@pytest.mark.parametrize("content", [None, b"", b"\xff\x00garbage"])
def test_a_credential_that_is_missing_or_damaged_is_named(server, tmp_path, member, content):
    file = tmp_path / "damaged"
    if content is not None:
        file.write_bytes(content)
    error = failing(FakeKubelet(tokens={"t"}), server, **{member: file})
    assert error.reason.code is Code.KUBELET_CREDENTIALS_UNREADABLE
    assert str(file) in str(error)


def test_an_unchanged_list_is_the_same_object_whatever_its_order(server):
    kubelet = FakeKubelet(tokens={"t"}, pods=[pod("a"), pod("b")])

    async def body(client):
        first = await client.pods()
        kubelet.pods.reverse()
        second = await client.pods()
        kubelet.pods[0]["status"] = {"phase": "Running"}
        return first, second, await client.pods()

    first, second, third = asking(kubelet, server, body, token="t")
    assert second is first
    assert third is not first
    assert third.items[0] is first.items[0]
    assert third.items[1].status.phase == "Running"


def test_requests_share_a_connection(server):
    kubelet = FakeKubelet(tokens={"t"}, pods=[pod("a")])

    async def body(client):
        for _ in range(3):
            await client.pods()

    asking(kubelet, server, body, token="t")
    assert len(kubelet.connections) == 1


def test_a_malformed_pod_is_named_and_spoils_no_other(server):
    bad = pod("bad", spec={"containers": "none"})
    listing = asking(
        FakeKubelet(tokens={"t"}, pods=[pod("a"), bad, "text"]), server, lambda c: c.pods(), token="t"
    )
    assert names(listing) == ["a"]
    named = [(bad.namespace, bad.name, bad.uid) for bad in listing.malformed]
    assert named == [("", "", ""), ("ns", "bad", "uid-bad")]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": 3}'])
@pytest.mark.parametrize("path", ["/pods", "/configz"])
def test_an_answer_of_another_form_is_an_error(server, path, body):
    def call(client):
        return client.pods() if path == "/pods" else client.configuration()

    error = failing(FakeKubelet(tokens={"t"}, bodies={path: body}), server, call, token="t")
    assert error.reason.code is Code.KUBELET_MALFORMED


def test_a_list_without_items_is_empty(server):
    kubelet = FakeKubelet(tokens={"t"}, bodies={"/pods": b'{"kind":"PodList","items":null}'})
    assert asking(kubelet, server, lambda c: c.pods(), token="t").items == ()


def test_the_configuration_is_read_and_reread_only_when_it_changed(server):
    kubelet = FakeKubelet(tokens={"t"})
    kubelet.configuration |= {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
        "reservedSystemCPUs": "0-1",
        "memoryManagerPolicy": "Static",
        "featureGates": {"KubeletFineGrainedAuthz": True},
        "cpuCFSQuotaPeriod": "5ms",
        "cpuManagerReconcilePeriod": "1m30s",
        "kubeReserved": None,
    }

    async def body(client):
        first = await client.configuration()
        second = await client.configuration()
        kubelet.configuration["cpuManagerPolicy"] = "none"
        return first, second, await client.configuration()

    first, second, third = asking(kubelet, server, body, token="t")
    assert second is first
    assert (first.cpu_manager_policy, third.cpu_manager_policy) == ("static", "none")
    assert first.cpu_manager_policy_options == {"full-pcpus-only": "true"}
    assert first.reserved_system_cpus == "0-1"
    assert first.memory_manager_policy == "Static"


def test_access_without_credentials_sends_none(server):
    error = failing(FakeKubelet(tokens={"t"}), server)
    assert error.reason.code is Code.KUBELET_UNAUTHORIZED


def test_default_access_is_the_kubelet_of_this_machine():
    assert replace(KubeletAccess(), token="t").url == "https://127.0.0.1:10250"
