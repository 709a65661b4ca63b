"""A real cluster of one node for the tests of this directory: etcd, API server, kubelet, containerd."""

import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from support import containerd, real_cluster, real_kubelet
from support.one_node import Cluster


@pytest.fixture(scope="session")
def programs():
    # `timeout` ends pytest by SIGTERM: then too nothing may be left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return real_cluster.assets()


@pytest.fixture(scope="session")
def plane(programs):
    with _short_directory("kp") as home, real_cluster.control_plane(programs, home, *USERS) as made:
        yield made


USERS = ("stranger", "pods-reader", "configz-reader", "reader", "proxy-reader")


@pytest.fixture(scope="module")
def release():
    """The containerd; test modules whose subject is the runtime override it with all."""
    return "1.6"


@pytest.fixture(scope="module")
def cluster(release, programs, plane):
    """A node with CPU manager policy none, whose pods are made by kubectl."""
    with _short_directory("kc") as home, containerd.running(_sub(home, "cd"), release) as runtime:
        kubectl = plane.kubectl(_sub(home, "kubectl"))
        with real_kubelet.kubelet(programs.kubelet, plane, runtime) as node:
            yield Cluster(plane, node, runtime, kubectl)
            kubectl("delete", "pod", "--all", "--grace-period=0", "--force")
            kubectl("delete", "node", node.name)


class _short_directory:  # noqa: N801 - used as a function
    """A directory whose path is short: sockets in it have at most 108 bytes of a path."""

    def __init__(self, name: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=f"corelane-{name}-"))

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_error: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _sub(home: Path, name: str) -> Path:
    path = home / name
    path.mkdir()
    return path
