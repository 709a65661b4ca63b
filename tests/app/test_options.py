"""Invalid options of `corelane up` are rejected before anything is changed."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from corelane.cpuset import CPUSet
from corelane.embedded.up import options
from corelane.embedded.up.cluster import Cluster
from corelane.embedded.up.datadir import Access, DataDir, DataDirError
from corelane.embedded.up.options import UpOptions
from corelane.machine.spec import parse_spec
from corelane.settings import SettingsError


def given(**settings: object) -> UpOptions:
    return UpOptions(data_dir=Path("/nowhere"), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["../../x", "a/../b", "..", ".", "", "A", "a_b", "ü", "a b", "-a", "a" * 64])
def test_an_invalid_node_name_is_rejected_and_creates_no_directory(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--node-name"):
        Cluster(UpOptions(data_dir=tmp_path / "data", node_name=name))
    assert not list(tmp_path.iterdir())


def test_an_invalid_host_name_requires_the_node_name_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "my_laptop")
    with pytest.raises(SettingsError, match=r"the host's name 'my_laptop' .* give --node-name"):
        options.node_name(given())


def test_the_host_name_becomes_lower_case_as_in_the_kubelet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.node", lambda: "Rack-1.Lab")
    assert options.node_name(given()) == "rack-1.lab"


def test_this_machine_cannot_have_the_name_of_a_simulated_node() -> None:
    with pytest.raises(SettingsError, match="sim-2"):
        options.node_name(given(node_name=options.simulated_name(2), simulated=2))
    assert options.node_name(given(node_name=options.simulated_name(2), simulated=1)) == "sim-2"


def test_reserved_cpus_are_a_cpu_list_or_none() -> None:
    assert options.reserved(given()) is None
    assert options.reserved(given(reserved_cpus="0-1,8")) == CPUSet((0, 1, 8))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("abc", "'abc' is neither a CPU nor a range of CPUs"),
        ("0,1-x", "'1-x' is neither a CPU nor a range of CPUs"),
        ("-1", "'-1' is neither a CPU nor a range of CPUs"),
        ("0 ,1", "'0 ' is neither a CPU nor a range of CPUs"),
        ("1,,2", "it has an empty part"),
        ("1,", "it has an empty part"),
        ("3-1", 'invalid range "3-1" (3 > 1)'),
        ("9999999999", "CPU id 9999999999 is too large (at most"),
        ("9" * 30, f"'{'9' * 30}' is neither a CPU nor a range of CPUs"),
    ],
)
def test_what_is_wrong_with_a_cpu_list_is_said_in_words_of_its_own(text: str, cause: str) -> None:
    with pytest.raises(SettingsError) as refused:
        options.reserved(given(reserved_cpus=text))
    start = f'--reserved-cpus: {text!r} is not a CPU list such as "0-1,8": '
    assert str(refused.value).startswith(start + cause)
    assert "strconv" not in str(refused.value)


def test_a_directory_in_place_of_the_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(DataDirError, match=r"/lock: not a regular file; remove it$"):
        DataDir(tmp_path)


def test_a_file_in_place_of_the_data_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataDirError, match=r"/data: File exists; give another directory with --data-dir$"):
        DataDir(tmp_path / "data")


def test_a_port_in_use_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        cluster = Cluster(UpOptions(data_dir=tmp_path / "data", port=port, cgroups="off"))
        with pytest.raises(
            SettingsError, match=f"port {port} of 127.0.0.1: Address already in use; .*--port"
        ):
            asyncio.run(cluster.start())
    assert not (tmp_path / "data").exists()  # a refused start leaves nothing in a new directory


def test_a_refused_start_leaves_a_directory_that_was_there_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    cluster = Cluster(UpOptions(data_dir=tmp_path, reserved_cpus="0-8191", cgroups="off"))
    with pytest.raises(SettingsError):
        asyncio.run(cluster.start())
    assert (tmp_path / "notes").read_text() == "mine"


TOKEN = "t" * 20
URL = "https://127.0.0.1:6443"


@contextmanager
def opened(path: Path) -> Iterator[DataDir]:
    directory = DataDir(path)
    try:
        yield directory
    finally:
        directory.close()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{\n", "not YAML"),
        (b"\xff\xfe\x00", "not YAML"),
        (b"- a\n", "not a YAML mapping"),
        (b"clusters: [a]\n", "clusters: not a list of named entries"),
        (b"users: [{name: corelane, user: x}]\n", "users: not a list of named entries"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_kept_under_another_name(
    tmp_path: Path, content: bytes, why: str
) -> None:
    (tmp_path / "kubeconfig").write_bytes(content)
    (tmp_path / "kubeconfig.damaged-1").write_bytes(b"of an earlier start")
    with opened(tmp_path) as directory:
        access = directory.access()
        directory.write_kubeconfig(URL, access.token, b"")
        (line,) = directory.notes
        assert line.startswith(f"{tmp_path / 'kubeconfig'}: {why}")
        assert "kubeconfig.damaged-2" in line
    assert (tmp_path / "kubeconfig.damaged-2").read_bytes() == content
    assert yaml.safe_load((tmp_path / "kubeconfig").read_text())["current-context"] == "corelane"


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "directory"])
def test_what_is_no_file_in_place_of_the_kubeconfig_is_neither_followed_nor_written(
    tmp_path: Path, kind: str
) -> None:
    other, place = tmp_path / "other", tmp_path / "data" / "kubeconfig"
    place.parent.mkdir()
    other.write_text("precious")
    match kind:
        case "link":
            place.symlink_to(other)
        case "dangling":
            place.symlink_to(tmp_path / "nowhere")
        case "pipe":
            os.mkfifo(place)
        case "directory":
            place.mkdir()
    with opened(place.parent) as directory:
        directory.write_kubeconfig(URL, directory.access().token, b"")
        assert len(directory.notes) == 1
    assert other.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()
    assert place.is_file()
    assert not place.is_symlink()


@pytest.mark.parametrize(
    ("server", "token", "port"),
    [
        ("https://127.0.0.1:99999", TOKEN, 0),
        ("https://127.0.0.1:-5", TOKEN, 0),
        ("https://example.com:443", TOKEN, 0),
        (6443, TOKEN, 0),
        (URL, None, 6443),
        (URL, "", 6443),
        (URL, "short", 6443),
    ],
)
def test_address_and_token_that_corelane_did_not_write_are_renewed(
    tmp_path: Path, server: object, token: object, port: int
) -> None:
    """A token that is empty, or the text None, would be an administrator's."""
    config = {
        "clusters": [{"name": "corelane", "cluster": {"server": server}}],
        "users": [{"name": "corelane", "user": {"token": token}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    with opened(tmp_path) as directory:
        access = directory.access()
        assert access.port == port
        assert len(access.token) >= 20
        assert (access.token == TOKEN) == (token == TOKEN) == (not directory.notes)
        directory.write_kubeconfig("https://127.0.0.1:7", access.token, b"")
        assert directory.access() == Access(7, access.token)


def test_changes_of_the_kubeconfig_by_its_user_stay(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        directory.write_kubeconfig(URL, TOKEN, b"old")
        config = yaml.safe_load(directory.kubeconfig.read_text())
        config["clusters"].insert(0, {"name": "a", "cluster": {"server": "https://a.example:443"}})
        config["clusters"][1]["cluster"]["tls-server-name"] = "localhost"
        config["users"].insert(0, {"name": "a", "user": {}})
        config["contexts"][0]["context"]["namespace"] = "prod"
        config["contexts"].append({"name": "b", "context": {"cluster": "a", "user": "a"}})
        config |= {"current-context": "b", "preferences": {"colors": True}}
        directory.kubeconfig.write_text(yaml.safe_dump(config))
        directory.kubeconfig.chmod(0o644)
        assert directory.access() == Access(6443, TOKEN)
        directory.write_kubeconfig("https://127.0.0.1:7000", TOKEN, b"new")
        config["clusters"][1]["cluster"] |= {
            "server": "https://127.0.0.1:7000",
            "certificate-authority-data": "bmV3",
        }
        assert yaml.safe_load(directory.kubeconfig.read_text()) == config
        assert directory.kubeconfig.stat().st_mode & 0o777 == 0o600


def test_a_kubeconfig_that_is_up_to_date_is_not_written(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        directory.write_kubeconfig(URL, TOKEN, b"")
        directory.kubeconfig.write_text(directory.kubeconfig.read_text() + "# my comment\n")
        directory.write_kubeconfig(URL, TOKEN, b"")
        assert directory.kubeconfig.read_text().endswith("# my comment\n")
        assert directory.notes == []


@pytest.mark.parametrize("text", ["0-1", "0,1", "0-7"])
def test_reserving_all_cpus_is_an_error_of_one_line(text: str) -> None:
    said = given(reserved_cpus=text)
    with pytest.raises(SettingsError, match=r"^--reserved-cpus .* reserves all CPUs of this machine \(0-1\)"):
        options.check_settings(said, options.settings(said), parse_spec("core:2"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('reservedCPUs: "0-1"', r"reservedCPUs 0-1"),
        ('reservedCPUs: "0,1"\npolicy: static', r"reservedCPUs 0-1"),
        ("reservedCPUCount: 2", r"reservedCPUCount 2"),
    ],
)
def test_a_node_file_that_reserves_all_cpus_is_an_error_that_names_it(
    tmp_path: Path, text: str, value: str
) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(f"{text}\n")
    said = given(node_config=file)
    match = rf"^{re.escape(str(file))}: {value} reserves all CPUs of this machine \(0-1\), none is left"
    with pytest.raises(SettingsError, match=match):
        options.check_settings(said, options.settings(said), parse_spec("core:2"))
    options.check_settings(said, options.settings(given(reserved_cpus="1")), parse_spec("core:2"))
    options.check_settings(said, options.settings(said), parse_spec("core:4"))


def test_simulated_nodes_with_all_cpus_reserved_are_an_error_too(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text('simulated: {reservedCPUs: "0-3"}\n')
    said = given(node_config=file)
    config = options.simulated_settings(options.settings(said), said)
    with pytest.raises(SettingsError, match=r"of simulated nodes: reservedCPUs 0-3 reserves all CPUs"):
        options.check_settings(said, config, parse_spec("core:4"), "of simulated nodes: ")


def test_the_only_cpu_may_be_reserved_by_a_file_as_it_is_by_default(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text('reservedCPUs: "0"\n')
    said = given(node_config=file)
    options.check_settings(said, options.settings(said), parse_spec("core:1"))


def test_missing_reserved_cpus_are_an_error_that_names_the_option() -> None:
    said = given(reserved_cpus="1,99")
    with pytest.raises(SettingsError) as refused:
        options.check_settings(said, options.settings(said), parse_spec("core:2"))
    assert str(refused.value) == "--reserved-cpus 1,99: CPU 99 is unavailable: choose from 0-1"
