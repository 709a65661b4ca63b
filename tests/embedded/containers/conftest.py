"""A runtime of local containers for each test that takes `runtime`; `mode` says how CPUs are enforced."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from corelane.embedded.containers.local import LocalRuntime
from support.containers import opened


@pytest.fixture
def mode() -> str:
    """Cgroups where they can be written. Tests marked `both_ways` have it as a parameter."""
    return "auto"


@pytest.fixture
def runtime(tmp_path: Path, mode: str) -> AbstractAsyncContextManager[LocalRuntime]:
    return opened(tmp_path / "state", mode)
