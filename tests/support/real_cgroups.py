"""Real cgroups for tests, below a root of their own that is taken away again."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from corelane.kernel import cgroup


@contextmanager
def instance() -> Iterator[tuple[cgroup.Groups, str]]:
    """The groups that can be had here and the name of an instance in them; skips where there are none."""
    try:
        groups = cgroup.find()
    except cgroup.CgroupsUnavailable as error:
        pytest.skip(f"needs cgroups that can be written (root, as a rule): {error}")
    name = f"test-{secrets.token_hex(4)}"
    try:
        yield groups, name
    finally:
        tidy(groups, name)


def tidy(groups: cgroup.Groups, name: str) -> None:
    if groups.exists(cgroup.join(name)):
        assert groups.empty(cgroup.join(name)) == []
        groups.delete(cgroup.join(name))
    groups.prune(cgroup.OWN)
