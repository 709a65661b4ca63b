"""A container's groups in the kernel's own cgroup version 1."""

import os
import secrets
from contextlib import suppress

import pytest

from corelane.kernel import container_cgroup, container_paths
from corelane.kernel.cgroup import CgroupsUnavailable


@pytest.fixture
def view():
    try:
        view = container_paths.view()
    except CgroupsUnavailable as error:
        pytest.skip(str(error))
    if view.version != 1 or not os.access(view.cpuset / "cgroup.procs", os.W_OK):
        pytest.skip("needs cgroup v1 that can be written")
    if len(container_cgroup.effective(view, "")) < 2:
        pytest.skip("needs two CPUs")
    return view


@pytest.fixture
def group(view):
    """A container's group with a nested one, made as runc makes them, and removed at the end."""
    top = f"corelane-test-{secrets.token_hex(4)}"
    path = f"{top}/kubepods/pod1/c1"
    made = [directory / part for directory in (view.cpuset, view.cpu) for part in _lineage(f"{path}/nested")]
    for directory in made:
        directory.mkdir()
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (directory / name).exists():
                (directory / name).write_text((directory.parent / name).read_text())
    yield path
    for directory in reversed(made):
        with suppress(OSError):
            directory.rmdir()


def _lineage(path):
    names = path.split("/")
    return ["/".join(names[:depth]) for depth in range(1, len(names) + 1)]
