"""The reader of the kernel's record of switches, also of one that lacks switches from the idle thread."""

from __future__ import annotations

from support import sched_trace
from support.sched_trace import Truth

LINE = b"sched_switch: prev_comm=a b prev_pid=%d prev_prio=120 prev_state=%s ==> next_comm=c next_pid=%d "


def switch(at: float, cpu: int, before: int, state: bytes, after: int) -> bytes:
    return b"  x-1 [%03d] d..2. %f: " % (cpu, at) + LINE % (before, state, after)


def wakeup(at: float, pid: int, target: int) -> bytes:
    return b"  <idle>-0 [000] dNh4. %f: sched_wakeup: comm=c pid=%d prio=120 target_cpu=%03d" % (
        at,
        pid,
        target,
    )


def migration(at: float, pid: int, target: int) -> bytes:
    return b"  x-1 [000] d..2. %f: sched_migrate_task: comm=c pid=%d prio=120 orig_cpu=0 dest_cpu=%d" % (
        at,
        pid,
        target,
    )


def parts(*lines: bytes) -> dict[str, float]:
    return Truth({7, 8}, [0, 1], 1.0, 2.0).read(b"# tracer: nop\n" + b"\n".join(lines))


IDLE = (switch(0.8, 0, 99, b"S", 0), switch(0.9, 1, 99, b"S", 0))


def test_a_woken_thread_waits_until_its_cpu_switches_to_it():
    lines = *IDLE, wakeup(1.2, 7, 0), switch(1.3, 0, 0, b"R", 7), switch(1.5, 0, 7, b"S", 0)
    found = parts(*lines, switch(2.0, 1, 0, b"R", 99))
    assert round(found["scheduling"]) == 100
    assert found["own"] == found["neighbours"] == 0


def test_an_unrecorded_switch_from_idle_is_at_the_wakeup():
    found = parts(*IDLE, wakeup(1.2, 7, 1), switch(1.5, 1, 7, b"S", 0), switch(2.0, 0, 0, b"R", 99))
    assert sum(found.values()) == 0


def test_an_unrecorded_switch_of_a_moved_thread_is_at_the_migration():
    """Thread 7 waits behind 8 for 100 ms beside an idle CPU, then moves there."""
    behind = wakeup(1.1, 8, 0), switch(1.1, 0, 0, b"R", 8), wakeup(1.2, 7, 0)
    moved = migration(1.3, 7, 1), switch(1.6, 1, 7, b"S", 0), switch(1.7, 0, 8, b"S", 0)
    found = parts(*IDLE, *behind, *moved, switch(2.0, 0, 0, b"R", 99))
    assert round(found["scheduling"]) == 100


def test_a_thread_behind_another_process_waits_for_neighbours():
    lines = switch(0.8, 0, 0, b"R", 99), switch(0.9, 1, 0, b"R", 98), wakeup(1.5, 7, 0)
    found = parts(*lines, switch(1.8, 0, 99, b"R+", 7), switch(2.0, 1, 98, b"R", 98))
    assert round(found["neighbours"]) == 300
    assert sched_trace.Truth({7}, [0], 1.0, 2.0).foreign == 0
