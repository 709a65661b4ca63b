"""What is listed is kept from the garbage collector, and released with the scheduler that held it."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from corelane.scheduler.daemon import memory


class Held:
    """An object that refers to itself, as a scheduler and its informers do."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_collections_do_not_reach_what_was_listed_and_release_gives_it_up() -> None:
    held = Held()
    alive = weakref.ref(held)
    memory.settle()
    assert gc.get_freeze_count() > 0
    del held
    gc.collect()
    assert alive() is not None
    memory.release()
    assert alive() is None
    assert gc.get_freeze_count() == 0


def test_young_objects_are_collected_in_small_portions() -> None:
    memory.collect_young()
    youngest, older, _ = gc.get_threshold()
    assert youngest * older <= 100_000
