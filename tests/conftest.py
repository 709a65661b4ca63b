"""What holds for all tests."""

import os
from typing import Any

import pytest
from hypothesis import settings

# A deadline measures the machine, not the code: CI's two cores are shared.
USUAL = 100
settings.register_profile("corelane", deadline=None, max_examples=USUAL)
settings.register_profile("thorough", deadline=None, max_examples=10 * USUAL, derandomize=False)
settings.load_profile("corelane")

# Tests run side by side on one machine, each with instances of its own.
os.environ.setdefault("CORELANE_UP_OTHER_INSTANCES", "ignore")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Scale numbers of examples that tests set themselves, as the profile scales the usual number."""
    if settings.default.max_examples != USUAL:
        functions = (getattr(item, "obj", None) for item in items)
        for function in {getattr(function, "__func__", function) for function in functions}:
            _scale(function, "_hypothesis_internal_use_settings")
        for state_machine in {getattr(item, "cls", None) for item in items}:
            _scale(state_machine, "settings")


def _scale(holder: Any, attribute: str) -> None:
    found, profile = getattr(holder, attribute, None), settings.default
    if isinstance(found, settings) and found.max_examples != profile.max_examples:
        examples = max(1, found.max_examples * profile.max_examples // USUAL)
        setattr(holder, attribute, settings(found, max_examples=examples))
