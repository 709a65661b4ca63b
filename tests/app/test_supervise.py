"""A start that takes for ever can be interrupted, and a failure of it is told."""

from __future__ import annotations

import asyncio

import pytest

from corelane.supervise import completes


def test_what_comes_to_its_end_has_completed() -> None:
    async def quick() -> None:
        await asyncio.sleep(0)

    async def scenario() -> bool:
        return await completes(quick(), unless=asyncio.Event())

    assert asyncio.run(scenario())


def test_the_event_cancels_what_takes_for_ever_and_waits_for_its_cleaning_up() -> None:
    steps = []

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            steps.append("cleaned up")

    async def scenario() -> bool:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_soon(stop.set)
        return await completes(endless(), unless=stop)

    assert not asyncio.run(scenario())
    assert steps == ["cleaned up"]


def test_a_failure_is_raised() -> None:
    async def failing() -> None:
        raise OSError("the disk is full")

    async def scenario() -> bool:
        return await completes(failing(), unless=asyncio.Event())

    with pytest.raises(OSError, match="the disk is full"):
        asyncio.run(scenario())
