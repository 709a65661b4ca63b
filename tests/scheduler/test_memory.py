"""What is listed is kept from the garbage collector, and released with the scheduler that held it."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from corelane.scheduler.daemon import garbage


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
    garbage.settle()
    assert gc.get_freeze_count() > 0
    del held
    gc.collect()
    assert alive() is not None
    garbage.release()
    assert alive() is None
    assert gc.get_freeze_count() == 0


def test_young_objects_are_collected_in_small_portions() -> None:
    garbage.collect_young()
    youngest, older, _ = gc.get_threshold()
    assert youngest * older <= 50_000


def test_objects_that_replace_others_do_not_become_many_before_they_are_collected() -> None:
    garbage.collect_young()
    objects, young = [[None] for _ in range(30_000)], garbage.YoungObjects()
    gc.collect()
    most = 0
    for begin in range(0, len(objects), 10):
        for place in range(begin, begin + 10):
            objects[place] = [None]  # One object more, and one less: none more for the collector.
        young.event_handled()
        most = max(most, len(gc.get_objects(0))) if begin % 1000 == 0 else most
    assert most < 10_000
