"""What holds for all tests."""

import asyncio
import inspect
import os
import random
import re
import sys
import typing
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from support.again import pytest_sessionfinish as pytest_sessionfinish

SEED = int(os.environ.setdefault("HYPOTHESIS_SEED", str(random.getrandbits(32))))
"""Of all properties, drawn anew for each run; workers inherit it."""
USUAL = 100
USUALLY = settings(
    settings.get_profile("default"),  # on CI, too: what is drawn there is drawn anew
    deadline=None,  # it measures the machine, not the code, as does the time to draw
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=False,
    print_blob=True,
    max_examples=USUAL,
)
settings.register_profile("corelane", USUALLY)
settings.register_profile("thorough", USUALLY, max_examples=10 * USUAL)
settings.load_profile("corelane")

_SEED = "_hypothesis_internal_use_seed"

if sys.version_info < (3, 12):
    # Later versions keep a protocol's members, too: without that, tests that make many schedulers spend half
    # of their time on asking which protocols their plugins implement.
    for _name in ("_get_protocol_attrs", "_is_callable_members_only"):
        setattr(typing, _name, cache(getattr(typing, _name)))

# A Python that crashes says where; pytest does so itself.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")


# Settings of whoever runs the tests shape no output, choose no cluster, and are no options of the commands.
_SHAPING = re.compile(
    r"(COLUMNS|LINES|(NO|FORCE)_COLOR|CLICOLOR(_FORCE)?|TTY_COMPATIBLE|KUBECONFIG"
    r"|CORELANE_(DEMO|UP|DOWN|AGENT|SCHEDULER|STATUS|EXPLAIN|TOPOLOGY|ALLOCATE|STATE|LIMITS)_.*)"
)
for _name in filter(_SHAPING.fullmatch, list(os.environ)):
    del os.environ[_name]
# Tests run side by side on one machine, each with instances of its own.
os.environ.setdefault("CORELANE_UP_OTHER_INSTANCES", "ignore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give properties their seed; scale numbers of examples that tests set as the profile scales its own."""
    functions = {getattr(one, "__func__", one) for one in (getattr(item, "obj", None) for item in items)}
    for function in functions:
        if getattr(function, _SEED, SEED) is None:
            setattr(function, _SEED, SEED)
    if settings.default.max_examples != USUAL:
        for function in functions:
            _scale(function, "_hypothesis_internal_use_settings")
        for state_machine in {getattr(item, "cls", None) for item in items}:
            _scale(state_machine, "settings")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"to draw the same values of properties again: HYPOTHESIS_SEED={SEED}")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own; fixtures that are async contexts surround it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None

    async def run() -> None:
        async with asyncio.timeout(180), AsyncExitStack() as stack:
            arguments = {
                name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters
            }
            for name, value in arguments.items():
                if isinstance(value, AbstractAsyncContextManager):
                    arguments[name] = await stack.enter_async_context(value)
            await pyfuncitem.obj(**arguments)

    asyncio.run(run())
    return True


def _scale(holder: Any, attribute: str) -> None:
    found, profile = getattr(holder, attribute, None), settings.default
    if isinstance(found, settings) and found.max_examples != profile.max_examples:
        examples = max(1, found.max_examples * profile.max_examples // USUAL)
        setattr(holder, attribute, settings(found, max_examples=examples))
