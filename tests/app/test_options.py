"""Invalid options of `corelane up` are rejected before anything is changed."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest
import yaml

from corelane.app.settings_file import SettingsError
from corelane.app.up import options
from corelane.app.up.cluster import Cluster
from corelane.app.up.datadir import DataDir, DataDirError
from corelane.app.up.options import UpOptions
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec


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
    with pytest.raises(DataDirError, match=r"/lock: a directory in place of the lock; remove it$"):
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


def test_an_unreadable_kubeconfig_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("{\n")
    directory = DataDir(tmp_path)
    with pytest.raises(DataDirError, match="not a kubeconfig that corelane wrote") as refused:
        directory.access()
    directory.close()
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "kubeconfig") in str(refused.value)


TOKEN = "t" * 20


@pytest.mark.parametrize(
    ("server", "token"),
    [
        ("https://127.0.0.1:99999", TOKEN),
        ("https://127.0.0.1:-5", TOKEN),
        ("https://example.com:443", TOKEN),
        (6443, TOKEN),
        ("https://127.0.0.1:6443", None),
        ("https://127.0.0.1:6443", ""),
        ("https://127.0.0.1:6443", "short"),
    ],
)
def test_address_and_token_that_corelane_did_not_write_are_refused(
    tmp_path: Path, server: object, token: object
) -> None:
    """A token that is empty, or the text None, would be an administrator's."""
    config = {
        "clusters": [{"name": "corelane", "cluster": {"server": server}}],
        "users": [{"name": "corelane", "user": {"token": token}}],
    }
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    directory = DataDir(tmp_path)
    with pytest.raises(DataDirError, match="no cluster corelane at https://"):
        directory.access()
    directory.close()


def test_kubeconfig_to_which_kubectl_added_other_clusters_is_read(tmp_path: Path) -> None:
    directory = DataDir(tmp_path)
    directory.write_kubeconfig("https://127.0.0.1:6443", TOKEN, b"")
    config = yaml.safe_load(directory.kubeconfig.read_text())
    config["clusters"].insert(0, {"name": "a", "cluster": {"server": "https://a.example:443"}})
    config["users"].insert(0, {"name": "a", "user": {}})
    directory.kubeconfig.write_text(yaml.safe_dump(config))
    assert (directory.access().port, directory.access().token) == (6443, TOKEN)
    directory.close()


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
