"""Kubeconfigs and service accounts: which API server to use, its TLS context, and the credentials sent to it.

Files of `$KUBECONFIG` are merged as kubectl merges them: of entries with one name the first file's counts.
"""

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from corelane import input_files
from corelane.yaml_keys import BoundedLoader

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_DEFAULT: Final = Path("~/.kube/config")
_CLUSTER_FILES: Final = ("certificate_authority",)
_USER_FILES: Final = ("token_file", "client_certificate", "client_key")


T = TypeVar("T")
F = TypeVar("F", bound=msgspec.Struct)


class ConfigError(ValueError):
    """No usable configuration or credentials; the message names the file."""


class _Form(msgspec.Struct, frozen=True, rename="kebab"):
    """An object of a kubeconfig; unknown fields are ignored."""


class ClusterForm(_Form, frozen=True):
    """An API server. `certificate_authority` is a file, `_data` its content in base64."""

    server: str = "http://localhost:8080"
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class Variable(msgspec.Struct, frozen=True):
    """An environment variable of a plugin."""

    name: str
    value: str


class PluginForm(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints an ExecCredential."""

    command: str
    api_version: str = ""
    args: list[str] | None = None
    env: list[Variable] | None = None


class UserForm(_Form, frozen=True):
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
    """One API server and one user, as the files have them; paths count from the file that names them."""

    cluster: ClusterForm
    user: UserForm = field(default_factory=UserForm)
    sources: tuple[Path, ...] = ()
    """Files that this was read from."""

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
        return (*self.sources, *(Path(name) for name in named if name))


def load(kubeconfig: Path | None = None, context: str | None = None) -> ServerConfig:
    """Read the named kubeconfig, else those of $KUBECONFIG, else the default one, else the service account.

    Raises ConfigError, OSError.
    """
    if kubeconfig:
        paths = [kubeconfig]
    else:  # the existing files, outside a cluster the first in any case
        named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
        candidates = named or [_expanded(_DEFAULT)]
        existing = [path for path in candidates if path.is_file()]
        in_cluster = "KUBERNETES_SERVICE_HOST" in os.environ
        paths = existing if existing or in_cluster else candidates[:1]
    if not paths:
        token = SERVICE_ACCOUNT / "token"
        try:
            token.read_text()
        except OSError as error:
            raise ConfigError(f"{token}: {error.strerror}") from error
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        cluster = ClusterForm(
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            certificate_authority=str(SERVICE_ACCOUNT / "ca.crt"),
        )
        return ServerConfig(cluster, UserForm(token_file=str(token)))
    merged = _Entries()
    for path in paths:
        merged.add(_read(path))
    names = ", ".join(map(str, paths))
    name = context or merged.current
    if name not in merged.contexts:
        raise ConfigError(f"{names}: no context {name!r}" if name else f"{names}: no current-context")
    chosen = merged.contexts[name]
    try:
        cluster = merged.clusters[chosen.cluster]
        user = merged.users[chosen.user] if chosen.user else UserForm()
    except KeyError as error:
        raise ConfigError(f"{names}: context {name!r} names {error}, which does not exist") from error
    return ServerConfig(cluster, user, tuple(paths))


def _expanded(path: Path) -> Path:
    """Replace `~`; a container's user may have neither $HOME nor an entry in /etc/passwd."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path


@dataclass
class _Entries:
    """Entries of one file, or of several together."""

    current: str = ""
    clusters: dict[str, ClusterForm] = field(default_factory=dict)
    users: dict[str, UserForm] = field(default_factory=dict)
    contexts: dict[str, _Context] = field(default_factory=dict)

    def add(self, later: "_Entries") -> None:
        self.current = self.current or later.current
        self.clusters = later.clusters | self.clusters
        self.users = later.users | self.users
        self.contexts = later.contexts | self.contexts


def _read(path: Path) -> _Entries:
    """Raises ConfigError, OSError."""
    path = _expanded(path)
    try:
        content = yaml.load(input_files.read(path), BoundedLoader)  # noqa: S506 - a SafeLoader
        if not isinstance(content, dict):
            raise ConfigError(f"{path}: not a kubeconfig: the file is not a mapping")
        clusters = _named(content.get("clusters") or [], "cluster", ClusterForm)
        users = _named(content.get("users") or [], "user", UserForm)
        return _Entries(
            msgspec.convert(content.get("current-context"), str | None) or "",
            {name: _absolute(path, cluster, _CLUSTER_FILES) for name, cluster in clusters},
            {name: _absolute(path, user, _USER_FILES) for name, user in users},
            dict(_named(content.get("contexts") or [], "context", _Context)),
        )
    except ConfigError:
        raise
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; give a kubeconfig that exists") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give a kubeconfig that can be read") from None
    except KeyError as error:
        raise ConfigError(f"{path}: lacks {error}") from error
    except (TypeError, AttributeError, ValueError, yaml.YAMLError, msgspec.MsgspecError) as error:
        raise ConfigError(f"{path}: not a kubeconfig: {' '.join(str(error).split())}") from error


def _named(items: Sequence[Mapping[str, Any]], key: str, form: type[T]) -> Iterator[tuple[str, T]]:
    for item in items:
        yield item["name"], msgspec.convert(item.get(key) or {}, form)


def _absolute(path: Path, form: F, names: Sequence[str]) -> F:
    """Return the form with the files that it names as seen from its own file."""
    named: dict[str, Any] = {name: str(path.parent / file) for name in names if (file := getattr(form, name))}
    if isinstance(form, UserForm) and form.exec and "/" in form.exec.command:  # else looked for in PATH
        command = str(path.parent / form.exec.command)
        named["exec"] = msgspec.structs.replace(form.exec, command=command)
    return msgspec.structs.replace(form, **named)


def decoded(name: str, data: str) -> bytes:
    """Return the content of a `-data` field. Raises ConfigError."""
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error as error:
        raise ConfigError(f"{name}: not base64: {error}") from error


_EXEC_API: Final = "client.authentication.k8s.io/"
_EXEC_VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")
_PLUGIN_SECONDS: Final = 60.0


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """Return the context of a server's connections, None without TLS.

    Raises ConfigError, OSError for files that cannot be read or are not what they are named as.
    """
    cluster = config.cluster
    if not cluster.server.startswith("https:"):
        return None
    if cluster.certificate_authority_data:
        text = decoded("certificate-authority-data", cluster.certificate_authority_data).decode()
        context = ssl.create_default_context(cadata=text)
    elif cluster.certificate_authority:
        input_files.read(cluster.certificate_authority, regular=True)  # OpenSSL waits, and reads without end
        context = ssl.create_default_context(cafile=cluster.certificate_authority)
    else:
        context = ssl.create_default_context()
    if cluster.insecure_skip_tls_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _load_certificate(context, config)
    return context


def _load_certificate(context: ssl.SSLContext, config: ServerConfig) -> None:
    """Load the user's certificate; OpenSSL takes it from files alone."""
    user = config.user
    if not (user.client_certificate or user.client_certificate_data):
        # A service account's: where the root file system is read-only, there is no directory for files.
        return
    with tempfile.TemporaryDirectory(prefix="corelane-") as directory:
        paths = []
        for name, file, data in (
            ("client-certificate", user.client_certificate, user.client_certificate_data),
            ("client-key", user.client_key, user.client_key_data),
        ):
            if data:
                path = Path(directory) / name
                path.touch(mode=0o600)
                path.write_bytes(decoded(f"{name}-data", data))
                paths.append(path)
            elif file:
                input_files.read(file, regular=True)
                paths.append(Path(file))
        if paths:
            context.load_cert_chain(paths[0], paths[1] if len(paths) > 1 else None)


class Authorization:
    """The Authorization header of requests: what a token file or a plugin gave is kept until `renew`."""

    def __init__(self, config: ServerConfig) -> None:
        """Raises ConfigError for a kind of credentials that is not supported."""
        self._config = config
        self._header: str | None = None
        if config.user.auth_provider and not config.user.token:
            raise ConfigError("auth-provider is not supported; use a credential plugin (exec)")

    def renew(self) -> bool:
        """Forget what a plugin gave; return whether it did: the next request asks it again."""
        given = self._header is not None and self._config.user.exec is not None
        self._header = None
        return given

    async def headers(self) -> dict[str, str]:
        """Return the header, if there is one. Raises ConfigError, OSError."""
        if self._header is None:
            self._header = await self._read()
        return {"Authorization": self._header} if self._header else {}

    async def _read(self) -> str:
        user = self._config.user
        if user.token_file:
            return f"Bearer {input_files.read(Path(user.token_file), regular=True).decode().strip()}"
        if user.token:
            return f"Bearer {user.token}"
        if user.exec:
            return f"Bearer {await _plugin_token(user.exec)}"
        if user.username and user.password:
            return f"Basic {base64.b64encode(f'{user.username}:{user.password}'.encode()).decode()}"
        return ""


class _Status(msgspec.Struct):
    token: str


class _ExecCredential(msgspec.Struct):
    status: _Status


async def _plugin_token(plugin: PluginForm) -> str:
    """Run a credential plugin (KEP-541). Raises ConfigError, OSError."""
    if plugin.api_version.removeprefix(_EXEC_API) not in _EXEC_VERSIONS:
        raise ConfigError(f"exec: apiVersion {plugin.api_version!r} is not supported")
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environment = {variable.name: variable.value for variable in plugin.env or []}
    process = await asyncio.create_subprocess_exec(
        plugin.command,
        *(plugin.args or []),
        env={**os.environ, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(), **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_PLUGIN_SECONDS):
            output, errors = await process.communicate()
    except TimeoutError:
        raise ConfigError(f"exec {plugin.command}: no answer within {_PLUGIN_SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        text = " ".join(errors.decode(errors="replace").split())
        raise ConfigError(f"exec {plugin.command}: exit code {process.returncode}: {text}")
    try:
        return msgspec.json.decode(output, type=_ExecCredential).status.token
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"exec {plugin.command}: not an ExecCredential with a token: {error}") from error
