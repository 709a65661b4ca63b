import asyncio

from corelane.embedded.housekeeping.work_queue import WorkQueue


def worked(add, seconds=0.3):
    """The keys that were reconciled, in order."""
    done = []

    async def story():
        queue = WorkQueue()

        async def reconcile(key):
            done.append(key)
            if key == "again" and done.count(key) < 3:
                queue.add(key, 0.01)

        add(queue)
        task = asyncio.create_task(queue.run(reconcile))
        await asyncio.sleep(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    return done


def test_a_key_is_reconciled_once_however_often_it_was_added():
    assert worked(lambda queue: [queue.add(key) for key in "abab"]) == ["a", "b"]


def test_an_earlier_time_wins_over_a_later_one():
    def add(queue):
        queue.add("late", 3600)
        queue.add("a", 3600)
        queue.add("a")
        queue.add("a", 3600)

    assert worked(add) == ["a"]


def test_a_key_added_while_it_is_reconciled_comes_again():
    assert worked(lambda queue: queue.add("again"), 1.0) == ["again"] * 3


def test_a_key_added_later_wakes_the_queue():
    done = []

    async def story():
        queue = WorkQueue()
        ready = asyncio.Event()

        async def reconcile(key):
            done.append(key)
            ready.set()

        task = asyncio.create_task(queue.run(reconcile))
        await asyncio.sleep(0.05)
        queue.add("far", 3600)
        await asyncio.sleep(0)
        queue.add("now")
        async with asyncio.timeout(120):
            await ready.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    assert done == ["now"]
