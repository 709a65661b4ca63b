"""Credentials for the API server: the TLS context, and the header that authorizes a request."""

import asyncio
import base64
import os
import ssl
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from corelane import input_files
from corelane.kube.kubeconfig import ConfigError, PluginForm, ServerConfig, decoded

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
            return f"Bearer {_token(Path(user.token_file))}"
        if user.token:
            return f"Bearer {user.token}"
        if user.exec:
            return f"Bearer {await _plugin_token(user.exec)}"
        if user.username and user.password:
            return f"Basic {base64.b64encode(f'{user.username}:{user.password}'.encode()).decode()}"
        return ""


def _token(file: Path) -> str:
    """Read a token; a file of some kilobytes, in memory where a kubelet mounts it."""
    return input_files.read(file, regular=True).decode().strip()


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
