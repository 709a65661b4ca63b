"""Pod over container, both out of runtime at once: whose clock runs, by kernel."""

import pytest

from corelane.limits.model.bandwidth import KERNELS, CFSLimit
from corelane.limits.model.clock import MS, SECOND
from corelane.limits.model.queues import RUN, SLEEP, CPUGroup
from corelane.limits.model.simulator import Simulator


def two_levels(kernel: str, tick_ns: int, *steps: tuple[int, int]) -> tuple[Simulator, CPUGroup, CPUGroup]:
    """10 ms of every 100 for both; the pod's periods begin with 0, the container's 50 ms later."""
    system = Simulator(1, KERNELS[kernel], tick_ns=tick_ns, tick_phases=lambda _cpu: 99 * MS)
    pod = system.group("pod", limit=CFSLimit(10 * MS))
    container = system.group("c", pod, limit=CFSLimit(10 * MS), phase_ns=50 * MS)
    system.thread(container, (step for step in steps), 0)
    return system, pod, container


@pytest.mark.parametrize(
    ("kernel", "of_pod"),
    [("5.14", 90 + 90), ("6.6", 50 + 50), ("6.18", 90 + 90)],
)
def test_the_clock_of_a_pod_stands_while_its_container_is_throttled_only_from_6_6_until_6_18(kernel, of_pod):
    system, pod, container = two_levels(kernel, 0, (RUN, SECOND))
    system.run(251 * MS)
    assert pod.usage_ns == 30 * MS
    assert container.stat().throttled_ns == 3 * 40 * MS
    assert pod.stat().throttled_ns == of_pod * MS
    assert (pod.stat().nr_periods, pod.stat().nr_throttled) == (2, 2)


@pytest.mark.parametrize(
    ("kernel", "of_container", "of_pod"),
    [("5.14", 50 - 12, 100 - 12), ("6.6", 50 - 30, 100 - 50), ("6.18", 50 - 30, 100 - 30)],
)
def test_a_task_that_wakes_under_two_throttled_levels_starts_both_clocks_where_tasks_are_set_aside(
    kernel, of_container, of_pod
):
    """It slept from 12 to 30 ms, having overdrawn by 2."""
    system, pod, container = two_levels(kernel, 100 * MS, (RUN, 12 * MS), (SLEEP, 18 * MS), (RUN, 1 * MS))
    system.run(140 * MS)
    assert pod.usage_ns == 13 * MS
    assert container.stat().throttled_ns == of_container * MS
    assert pod.stat().throttled_ns == of_pod * MS
