"""A container image of one layer, made from the machine's static busybox."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

IMAGE = "localhost/corelane-test:1"
SLEEP = ("/bin/busybox", "sleep", "600")


def busybox() -> Path | None:
    """The machine's busybox if it needs no libraries."""
    for path in (Path("/bin/busybox"), Path("/usr/bin/busybox")):
        if path.exists() and b"ld-linux" not in path.read_bytes()[:4096]:
            return path
    return None


def archive(program: Path) -> bytes:
    """What `ctr images import` reads: an image that holds busybox and sleeps by default."""
    layer = _tar({"bin/busybox": program.read_bytes(), "etc/passwd": b"root:x:0:0:root:/:/bin/sh\n"})
    config = {
        "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
        "os": "linux",
        "config": {"Cmd": list(SLEEP)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    return _tar(
        {
            "layer.tar": layer,
            "config.json": json.dumps(config).encode(),
            "manifest.json": json.dumps(manifest).encode(),
        }
    )


def _tar(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()
