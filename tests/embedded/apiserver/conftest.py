"""A server in memory for each test that takes `api`."""

from contextlib import AbstractAsyncContextManager

import pytest

from support import apiserver


@pytest.fixture
def api() -> AbstractAsyncContextManager[apiserver.Api]:
    return apiserver.serving()
