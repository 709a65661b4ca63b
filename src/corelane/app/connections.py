"""`runtime` and `kubelet` of a node's file: sockets and server that an agent beside a kubelet uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from msgspec import UNSET, Meta, Struct, UnsetType

from corelane.app.settings_file import SettingsError, given, invalid

CONTAINERD: Final = "unix:///run/containerd/containerd.sock"
NRI_SOCKET: Final = Path("/var/run/nri/nri.sock")
STATE_FILE: Final = Path("/var/lib/kubelet/cpu_manager_state")
POD_RESOURCES: Final = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
_NRI: Final = f"an absolute path such as {NRI_SOCKET}, or off"


@dataclass(frozen=True, slots=True)
class RuntimeSockets:
    """Sockets of the container runtime: its CRI endpoint, and that of NRI, None where NRI is not used."""

    endpoint: str = CONTAINERD
    nri: Path | None = NRI_SOCKET


@dataclass(frozen=True, slots=True)
class KubeletConnection:
    """How to reach the kubelet, and its files; "" and None are the defaults of the agent's pod or host."""

    address: str = ""
    server_name: str = ""
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    token_file: Path | None = None
    insecure: bool = False
    state_file: Path | None = None
    pod_resources: Path | None = None


DEFAULT_SOCKETS: Final = RuntimeSockets()
DEFAULT_KUBELET: Final = KubeletConnection()

# The file's form.

_Path = Annotated[str, Meta(pattern="^/", description="an absolute path")]
_ADDRESS: Final = "a URL such as https://127.0.0.1:10250"
_RUNTIME_FIELDS: Final = {"endpoint": "endpoint", "nri": "nri"}
_KUBELET_FIELDS: Final = {
    "server_name": "serverName",
    "ca_file": "caFile",
    "certificate_file": "certificateFile",
    "key_file": "keyFile",
    "token_file": "tokenFile",
    "insecure": "insecureSkipTLSVerify",
    "state_file": "stateFile",
    "pod_resources": "podResources",
}


class RuntimeForm(Struct, kw_only=True, forbid_unknown_fields=True):
    """`runtime` as the file has it; YAML reads a bare `off` as false."""

    endpoint: (
        Annotated[str, Meta(pattern="^(unix://)?/", description=f"a socket such as {CONTAINERD}")] | UnsetType
    ) = UNSET
    nri: Annotated[str | bool, Meta(description=_NRI)] | UnsetType = UNSET


class KubeletForm(Struct, kw_only=True, forbid_unknown_fields=True, rename=_KUBELET_FIELDS):
    """`kubelet` as the file has it."""

    address: Annotated[str, Meta(pattern=r"^https://[^/]+/?$", description=_ADDRESS)] | UnsetType = UNSET
    server_name: str | UnsetType = UNSET
    ca_file: _Path | UnsetType = UNSET
    certificate_file: _Path | UnsetType = UNSET
    key_file: _Path | UnsetType = UNSET
    token_file: _Path | UnsetType = UNSET
    insecure: bool | UnsetType = UNSET
    state_file: _Path | UnsetType = UNSET
    pod_resources: _Path | UnsetType = UNSET


def runtime_sockets(form: RuntimeForm) -> RuntimeSockets:
    """Return the sockets of a file. Raises SettingsError."""
    values = given(form)
    if "nri" in values:
        values["nri"] = nri_socket("runtime.nri", values["nri"])
    return RuntimeSockets(**values)


def nri_socket(field: str, value: str | bool) -> Path | None:
    """Return the path of an NRI socket, None for "off". Raises SettingsError."""
    if value in (False, "off"):
        return None
    if not isinstance(value, str) or not value.startswith("/"):
        raise invalid(field, value, _NRI)
    return Path(value)


def _is_address(url: str) -> bool:
    """Whether a URL has a host, perhaps a port, and nothing else."""
    try:
        parts = urlsplit(url)
        plain = not (parts.username or parts.query or parts.fragment) and parts.port != 0
    except ValueError:
        return False
    return plain and re.fullmatch(r"[\w.-]+|[0-9a-fA-F:.]+(%\w+)?", parts.hostname or "") is not None


def kubelet_connection(form: KubeletForm) -> KubeletConnection:
    """Return the connection of a file. Raises SettingsError."""
    values = given(form)
    if "address" in values and not _is_address(values["address"]):
        raise invalid("kubelet.address", values["address"], _ADDRESS)
    pair = [_KUBELET_FIELDS[name] for name in ("certificate_file", "key_file") if name in values]
    if len(pair) == 1:
        raise SettingsError(f"kubelet.{pair[0]} is set alone; set certificateFile and keyFile, or neither")
    texts = ("address", "server_name", "insecure")
    converted: dict[str, Any] = {k: v if k in texts else Path(v) for k, v in values.items()}
    return KubeletConnection(**converted)
