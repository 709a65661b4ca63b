"""Options of `corelane agent run`: merged with the node's file; refused with name and remedy."""

from pathlib import Path

import pytest

from corelane.app.agent import command
from corelane.app.agent.command import AgentOptions
from corelane.app.nodefile import KubeletConnection
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.settings import SettingsError


def written(path: Path, text: str) -> Path:
    file = path / "node.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("flag", "environment", "name"),
    [("node-1", "node-2", "node-1"), (None, "node-2", "node-2"), ("a.b", "", "a.b")],
)
def test_the_flag_precedes_the_environment(monkeypatch, flag, environment, name) -> None:
    monkeypatch.setenv("NODE_NAME", environment)
    assert command.node_name(AgentOptions(node_name=flag)) == name


@pytest.mark.parametrize(
    ("flag", "environment", "where"), [("", "x", "--node-name"), (None, "A_b", "NODE_NAME")]
)
def test_an_invalid_node_name_is_refused_with_its_source(monkeypatch, flag, environment, where) -> None:
    monkeypatch.setenv("NODE_NAME", environment)
    with pytest.raises(SettingsError, match=where):
        command.node_name(AgentOptions(node_name=flag))


def test_flags_override_the_file_and_the_file_the_defaults(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "reconcileSeconds: 3\nruntime: {endpoint: unix:///a.sock, nri: /a/nri.sock}\npolicy: static\n",
    )
    plain = command.node_file(AgentOptions())
    assert (plain.config.policy, plain.reconcile_seconds) == ("pools", 10.0)
    assert (plain.runtime.endpoint, str(plain.runtime.nri)) == (
        "unix:///run/containerd/containerd.sock",
        "/var/run/nri/nri.sock",
    )
    of_file = command.node_file(AgentOptions(node_config=file))
    assert (of_file.config.policy, of_file.reconcile_seconds) == ("static", 3.0)
    assert (of_file.runtime.endpoint, str(of_file.runtime.nri)) == ("unix:///a.sock", "/a/nri.sock")
    flags = AgentOptions(node_config=file, runtime="/b.sock", nri="off", reconcile_seconds=7.0)
    overridden = command.node_file(flags)
    assert (overridden.reconcile_seconds, overridden.runtime.endpoint, overridden.runtime.nri) == (
        7.0,
        "/b.sock",
        None,
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"read_only": True, "ignore": True}, ["--read-only", "--ignore", "give one of them"]),
        ({"runtime": "tcp://x"}, ["--runtime 'tcp://x'", "unix://"]),
        ({"runtime": ""}, ["--runtime ''"]),
        ({"nri": "nri.sock"}, ["--nri", "'nri.sock'", "absolute path"]),
        ({"node_config": Path("/nowhere/node.yaml")}, ["/nowhere/node.yaml", "No such file"]),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(given, words) -> None:
    with pytest.raises(SettingsError) as caught:
        command.node_file(AgentOptions(**given))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://x",
        "https://",
        "https://x:99999",
        "https://x:0",
        "https://x y",
        "https://u@x",
        "https://x/y",
        "https://x?y",
    ],
)
def test_a_kubelet_address_that_is_none_is_refused(tmp_path: Path, url: str) -> None:
    file = written(tmp_path, f"kubelet: {{address: {url!r}}}\n")
    with pytest.raises(
        SettingsError, match=r"kubelet\.address: .* use a URL such as https://127\.0\.0\.1:10250"
    ):
        command.node_file(AgentOptions(node_config=file))


@pytest.mark.parametrize(
    "url", ["https://node-1", "https://[::1]:10250", "https://10.0.0.1:10250/", "https://a.b:1"]
)
def test_a_kubelet_address_is_a_host_with_a_port_perhaps(tmp_path: Path, url: str) -> None:
    file = written(tmp_path, f"kubelet: {{address: {url!r}}}\n")
    assert command.node_file(AgentOptions(node_config=file)).kubelet.address == url


def test_settings_that_the_machine_cannot_satisfy_name_file_and_field(tmp_path: Path) -> None:
    given = AgentOptions(node_config=tmp_path / "node.yaml")
    config = NodeConfig(policy="pools", reserved_count=99)
    with pytest.raises(SettingsError, match=r"node\.yaml: reservedCPUCount: "):
        command.check_settings(given, config, parse_spec("core:4 smt:1"))


def test_the_kubelet_of_a_pod_is_reached_with_its_service_account(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")
    monkeypatch.setenv("NODE_IP", "fd00::1")
    access = command.kubelet_access(KubeletConnection(), "node-1", tmp_path)
    assert (access.url, access.token_file, access.ca_file, access.server_name) == (
        "https://[fd00::1]:10250",
        tmp_path / "token",
        tmp_path / "ca.crt",
        "",
    )


def test_without_an_address_it_is_loopback_with_the_nodes_name_in_the_certificate(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv("NODE_IP", raising=False)
    access = command.kubelet_access(KubeletConnection(), "node-1", tmp_path)
    assert (access.url, access.server_name) == ("https://127.0.0.1:10250", "node-1")
    assert (access.ca_file, access.token_file) == (None, None)


def test_own_credentials_replace_those_of_the_service_account(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "token").write_text("t")
    pair = KubeletConnection(
        address="https://node-1:1",
        certificate_file=Path("/c.pem"),
        key_file=Path("/k.pem"),
        server_name="other",
    )
    access = command.kubelet_access(pair, "node-1", tmp_path)
    assert (access.url, access.token_file, access.certificate_file, access.server_name) == (
        "https://node-1:1",
        None,
        Path("/c.pem"),
        "other",
    )


@pytest.mark.parametrize("path", ["state/agent.lock", "state", "."])
def test_an_error_of_the_state_directory_names_it_and_the_remedy(path: str) -> None:
    with (
        pytest.raises(SettingsError, match=r"state directory state: .*Permission denied; .*--state-dir"),
        command.naming_state_dir(Path("state")),
    ):
        raise PermissionError(13, "Permission denied", path)


def test_a_directory_in_place_of_a_file_is_to_be_removed() -> None:
    with (
        pytest.raises(SettingsError, match=r"state/ledger\.json: Is a directory; remove it"),
        command.naming_state_dir(Path("state")),
    ):
        raise IsADirectoryError(21, "Is a directory", "state/ledger.json")


def test_errors_of_other_files_stay_as_they_are() -> None:
    with pytest.raises(PermissionError), command.naming_state_dir(Path("/a/state")):
        raise PermissionError(13, "Permission denied", "/b/file")
