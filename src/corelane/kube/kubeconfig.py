"""Kubeconfigs and service accounts: which API server to use, and with which credentials.

Files of `$KUBECONFIG` count as kubectl merges them, as far as one context with its cluster and user goes.
"""

import base64
import binascii
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT: Final = Path("~/.kube/config")


class ConfigError(ValueError):
    """No usable configuration or credentials; the message names the file."""


class _Form(msgspec.Struct, rename="kebab"):
    """An object of a kubeconfig; unknown fields are ignored."""


class ClusterForm(_Form):
    """An API server. `certificate_authority` is a file, `_data` its content in base64."""

    server: str = "http://localhost:8080"
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class Variable(msgspec.Struct):
    """An environment variable of a plugin."""

    name: str
    value: str


class PluginForm(msgspec.Struct, rename="camel"):
    """A program that prints an ExecCredential."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None


class UserForm(_Form):
    """Credentials; of several the first counts, in the order token file, token, plugin, password."""

    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    exec: PluginForm | None = None
    auth_provider: Any = None
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


class _Context(msgspec.Struct):
    cluster: str
    user: str | None = None


@dataclass(frozen=True)
class ServerConfig:
    """One API server and one user, as the files have them. Relative paths count from `directory`."""

    cluster: ClusterForm
    user: UserForm = field(default_factory=UserForm)
    directory: Path | None = None
    sources: tuple[Path, ...] = ()
    """Files that this was read from."""

    def path(self, name: str) -> Path:
        """Return a file that the configuration names. Raises ConfigError."""
        if self.directory is None and not Path(name).is_absolute():
            raise ConfigError(f"{name}: a relative path, outside of a kubeconfig")
        return (self.directory or Path()) / name

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the configuration came from, and those that it names."""
        user = self.user
        named = (
            self.cluster.certificate_authority,
            user.client_certificate,
            user.client_key,
            user.token_file,
        )
        return (*self.sources, *(self.path(name) for name in named if name))


def load(kubeconfig: Path | None = None, context: str | None = None) -> ServerConfig:
    """Read the named kubeconfig, else those of $KUBECONFIG, else the default one, else the service account.

    Raises ConfigError, OSError.
    """
    paths = [kubeconfig] if kubeconfig else _paths()
    if not paths:
        return _of_service_account(SERVICE_ACCOUNT)
    files = [_read(path) for path in paths]
    wanted = context or next((file.current for file in files if file.current), None)
    for file in files:
        if wanted and wanted in file.contexts:
            return file.selected(wanted, tuple(paths))
    names = ", ".join(map(str, paths))
    raise ConfigError(f"{names}: no context {wanted!r}" if wanted else f"{names}: no current-context")


def _paths() -> list[Path]:
    """The existing files of $KUBECONFIG, else the default; outside a cluster the first in any case."""
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    candidates = named or [_DEFAULT.expanduser()]
    existing = [path for path in candidates if path.is_file()]
    in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
    return existing if existing or in_cluster else candidates[:1]


@dataclass(frozen=True)
class _File:
    path: Path
    current: str | None
    clusters: Mapping[str, ClusterForm]
    users: Mapping[str, UserForm]
    contexts: Mapping[str, _Context]

    def selected(self, name: str, sources: tuple[Path, ...]) -> ServerConfig:
        context = self.contexts[name]
        try:
            cluster = self.clusters[context.cluster]
            user = self.users[context.user] if context.user else UserForm()
        except KeyError as error:
            raise ConfigError(f"{self.path}: context {name!r} names {error}, which does not exist") from error
        return ServerConfig(cluster, user, self.path.parent, sources)


def _read(path: Path) -> _File:
    """Raises ConfigError, OSError."""
    try:
        content = yaml.safe_load(path.expanduser().read_text())
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: not a kubeconfig: the file is not a mapping")
        return _File(
            path,
            msgspec.convert(content.get("current-context"), str | None),
            dict(_named(content["clusters"], "cluster", ClusterForm)),
            dict(_named(content.get("users") or [], "user", UserForm)),
            dict(_named(content["contexts"], "context", _Context)),
        )
    except ConfigError:
        raise
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give a kubeconfig that exists") from None
    except KeyError as error:
        raise ConfigError(f"{path}: lacks {error}") from error
    except (TypeError, AttributeError, ValueError, yaml.YAMLError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: not a kubeconfig: {' '.join(str(error).split())}") from error


def _named(items: Sequence[Mapping[str, Any]], key: str, form: type[Any]) -> Iterator[tuple[str, Any]]:
    for item in items:
        yield item["name"], msgspec.convert(item.get(key) or {}, form)


def _of_service_account(directory: Path) -> ServerConfig:
    token = directory / "token"
    try:
        token.read_text()
    except OSError as error:
        raise ConfigError(f"{token}: {error.strerror}") from error
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    cluster = ClusterForm(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        certificate_authority=str(directory / "ca.crt"),
    )
    return ServerConfig(cluster, UserForm(token_file=str(token)))


def decoded(name: str, data: str) -> bytes:
    """Return the content of a `-data` field. Raises ConfigError."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{name}: not base64: {error}") from error
