"""Local containers observed many at a time: one thread reads for a whole batch, instead of one for each."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from corelane.embedded.containers.enforce import Enforcements
from corelane.embedded.containers.registry import ContainerRegistry, LocalContainer
from corelane.runtime.base import Observation, UnknownContainer

_BATCH: Final = 64
"""Containers read in one thread at a time: about 5 ms."""


async def observe_all(
    known: ContainerRegistry, enforcements: Enforcements, container_ids: Iterable[str]
) -> dict[str, Observation]:
    """As `Runtime.observe_all`; what is being started is observed once it has started."""
    found: dict[str, Observation] = {}
    ids = iter(container_ids)
    while batch := list(islice(ids, _BATCH)):
        containers = []
        for container_id in batch:
            try:
                containers.append(await known.settled(container_id))
            except UnknownContainer as error:
                found[container_id] = error
        found |= await asyncio.to_thread(_observed, enforcements, containers)
    return found


def _observed(enforcements: Enforcements, containers: Sequence[LocalContainer]) -> dict[str, Observation]:
    return {one.stored.id: _reading(enforcements, one) for one in containers}


def _reading(enforcements: Enforcements, container: LocalContainer) -> Observation:
    stored, outcome = container.stored, container.outcome
    if outcome is None:
        return None
    try:
        return enforcements.of(stored).observe(stored, outcome)
    except Exception as error:  # noqa: BLE001 - the caller's: other containers are read all the same
        return error
