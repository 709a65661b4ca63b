"""A real API server and etcd of a test's own, started the way envtest starts them: everything on loopback.

`KUBEBUILDER_ASSETS` names a directory with kube-apiserver and etcd (as for envtest), `KUBELET` a kubelet.
Without them the tests skip. There is no controller manager: no default service account, no node lifecycle.
"""

import os
import secrets
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from support import kubectl
from support.certificates import Authority, signing_key
from support.programs import Program, free_port

ADMIN_GROUP = "system:masters"
STARTUP = 180.0
_ISSUER = "https://kubernetes.default.svc"


@dataclass(frozen=True, slots=True)
class Assets:
    """The programs of a real cluster."""

    apiserver: Path
    etcd: Path
    kubelet: Path


def servers() -> Assets:
    """The programs of a cluster without nodes; skips where the environment does not name them."""
    directory = os.environ.get("KUBEBUILDER_ASSETS")
    if not directory:
        pytest.skip("no real API server: set KUBEBUILDER_ASSETS (directory of kube-apiserver and etcd)")
    programs = Assets(Path(directory) / "kube-apiserver", Path(directory) / "etcd", Path())
    for program in (programs.apiserver, programs.etcd):
        if not os.access(program, os.X_OK):
            pytest.fail(f"{program}: is not an executable file; correct KUBEBUILDER_ASSETS")
    return programs


def assets() -> Assets:
    """The programs that the environment names; skips, naming what is missing."""
    directory, kubelet = os.environ.get("KUBEBUILDER_ASSETS"), os.environ.get("KUBELET")
    if not directory or not kubelet:
        pytest.skip(
            "no real cluster: set KUBEBUILDER_ASSETS (directory of kube-apiserver and etcd) and KUBELET"
        )
    programs = Assets(Path(directory) / "kube-apiserver", Path(directory) / "etcd", Path(kubelet))
    for program in (programs.apiserver, programs.etcd, programs.kubelet):
        if not os.access(program, os.X_OK):
            pytest.fail(f"{program}: is not an executable file; correct KUBEBUILDER_ASSETS or KUBELET")
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv (util-linux)")
    return programs


@dataclass
class ControlPlane:
    """A running API server; users are known by the tokens of `tokens`, or by client certificates."""

    home: Path
    authority: Authority
    ca_file: Path
    url: str
    token: str
    """Of a member of system:masters."""
    tokens: dict[str, str]
    """Tokens by user name, of users without any rights."""
    server: Program
    etcd: Program
    _command: tuple[object, ...] = field(repr=False, default=())

    def kubectl(self, directory: Path) -> kubectl.Kubectl:
        found = kubectl.connect(self.url, self.ca_file, self.token, directory)
        if found is None:
            pytest.skip(kubectl.MISSING)
        return found

    def kubeconfig(self, path: Path, token: str) -> Path:
        """Write a kubeconfig for a token's user."""
        path.write_text(yaml.safe_dump(kubectl.kubeconfig(self.url, self.ca_file, token)))
        path.chmod(0o600)
        return path

    def certificate_kubeconfig(self, path: Path, certificate: Path) -> Path:
        """Write a kubeconfig for a client certificate's user."""
        config = kubectl.kubeconfig(self.url, self.ca_file, "")
        config["users"][0]["user"] = {"client-certificate": str(certificate), "client-key": str(certificate)}
        path.write_text(yaml.safe_dump(config))
        return path

    def stop_server(self) -> None:
        """End the API server alone: etcd keeps what it has."""
        self.server.stop()

    def start_server(self) -> None:
        """Start the API server again, at the same address."""
        self.server = Program(self.home / "kube-apiserver.log", *self._command)
        self.server.wait_until(lambda: _ready(self.url, self.ca_file, self.token), STARTUP)


@contextmanager
def control_plane(
    programs: Assets, home: Path, *users: str, options: tuple[str, ...] = ()
) -> Iterator[ControlPlane]:
    """An API server with RBAC and node authorization, and its etcd, in `home`; `users` get a token each.

    `options` are more of the API server's.
    """
    authority = Authority.make()
    ca_file = authority.write(home / "ca.crt")
    port, token = free_port(), secrets.token_hex(16)
    tokens = {user: secrets.token_hex(16) for user in users}
    etcd, etcd_url = _start_etcd(programs.etcd, home)
    try:
        command = _server_command(
            programs.apiserver,
            home,
            authority,
            port=port,
            etcd=etcd_url,
            tokens=_token_file(home, token, tokens),
        )
        command = (*command, *options)
        server = Program(home / "kube-apiserver.log", *command)
        url = f"https://127.0.0.1:{port}"
        plane = ControlPlane(home, authority, ca_file, url, token, tokens, server, etcd, command)
        try:
            server.wait_until(lambda: _ready(url, ca_file, token), STARTUP)
            yield plane
        finally:
            plane.server.stop(seconds=20)
    finally:
        etcd.stop()


def _start_etcd(program: Path, home: Path) -> tuple[Program, str]:
    url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    etcd = Program(
        home / "etcd.log",
        program,
        f"--data-dir={home}/etcd",
        "--name=test",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=test={peer}",
    )
    etcd.wait_until(lambda: urllib.request.urlopen(f"{url}/health", timeout=5).status == 200, 60)
    return etcd, url


def _token_file(home: Path, admin: str, tokens: dict[str, str]) -> Path:
    rows = [f"{token},{user},{user}" for user, token in tokens.items()]
    path = home / "tokens.csv"
    path.touch(mode=0o600)
    path.write_text("\n".join([f'{admin},corelane-admin,admin,"{ADMIN_GROUP}"', *rows, ""]))
    return path


def _server_command(
    program: Path,
    home: Path,
    authority: Authority,
    *,
    port: int,
    etcd: str,
    tokens: Path,
) -> tuple[object, ...]:
    serving = authority.issue(home / "serving.pem", "kube-apiserver", "127.0.0.1", "localhost")
    kubelets = authority.issue(home / "kubelets.pem", "kube-apiserver", groups=(ADMIN_GROUP,))
    accounts = signing_key(home / "service-accounts.key")
    return (
        program,
        f"--etcd-servers={etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={serving}",
        f"--tls-private-key-file={serving}",
        f"--client-ca-file={home}/ca.crt",
        f"--cert-dir={home}",
        f"--token-auth-file={tokens}",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}",
        "--authorization-mode=Node,RBAC",
        # There is no controller that makes a namespace's default service account.
        "--disable-admission-plugins=ServiceAccount",
        "--enable-admission-plugins=NodeRestriction",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--allow-privileged=true",
        f"--kubelet-client-certificate={kubelets}",
        f"--kubelet-client-key={kubelets}",
        f"--kubelet-certificate-authority={home}/ca.crt",
        "--profiling=false",
        "--v=1",
    )


def _ready(url: str, authority: Path, token: str) -> bool:
    return status(f"{url}/readyz", authority, token) == 200


def status(url: str, authority: Path, token: str) -> int:
    """The HTTP status code that a GET with a bearer token gets. Raises OSError."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    trust = ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
