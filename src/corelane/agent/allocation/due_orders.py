"""What is due for the containers of a node: moves to other CPUs, changes of resources, and readings."""

from dataclasses import replace

from corelane.agent.allocation import confirmation, cpu_moves, instructions
from corelane.agent.allocation.allocation import Allocation
from corelane.agent.allocation.cpu_moves import CPUAllocation
from corelane.agent.allocation.records import RunCPUs
from corelane.cpuset import CPUSet
from corelane.node.entries import Sharing
from corelane.runtime.base import ResourceUpdate


def order_moves(allocation: Allocation, now: float) -> None:
    """Order the moves and the changes of resources that are due."""
    allocation.hold_again()
    _take_as_applied(allocation, now)
    for run, target in cpu_moves.due_moves(allocation.pods.values(), allocation.ledger):
        if now >= run.retry_at and allocation.may_write(allocation.pods[run.uid]):
            own = allocation.target(run.uid, run.container)
            if own is not None and own.sharing.exclusive and target.cpus != own.cpus:
                run.pooled, target = True, replace(target, sharing=Sharing.POOL)  # for the time being
            _order_pin(allocation, run, target.cpus, _due_change(allocation, run, target))
    for pod in allocation.pods.values():
        for run in pod.runs if not pod.unmanaged and allocation.may_write(pod) else ():
            _order_change(allocation, run, now)


def order_observations(allocation: Allocation) -> None:
    """Order to read the CPUs of new runs."""
    for run in allocation.runs():
        if run.unread and run.pending is None:
            run.unread = False
            allocation.outbox.put(instructions.Observe(run.id))


def _take_as_applied(allocation: Allocation, now: float) -> None:
    """Let runs that were on their CPUs before anything was ordered stay there, without an order."""
    for run in allocation.runs():
        pod = allocation.pods[run.uid]
        new = run.seen and run.movable and not run.applied and not run.record_differs
        if new and not pod.unmanaged and allocation.may_write(pod):
            target = allocation.target(run.uid, run.container)
            if target is not None and target.cpus == run.seen:
                confirmation.note_in_place(run)
                allocation.confirm(run, now)


def _order_change(allocation: Allocation, run: RunCPUs, now: float) -> None:
    """Order a change of memory nodes or quota that is due while the CPUs stay."""
    target = allocation.target(run.uid, run.container)
    if target is None or run.resources is None or not run.movable or now < run.retry_at:
        return
    if not run.applied or (target.sharing.exclusive and run.applied != target.cpus):
        return  # it waits for its CPUs
    change = _due_change(allocation, run, target)
    if change is None:
        run.attempted = None
    elif run.attempted != (change, run.resources):  # else it had no effect
        _order_pin(allocation, run, run.applied, change)


def _order_pin(allocation: Allocation, run: RunCPUs, cpus: CPUSet, change: ResourceUpdate | None) -> None:
    run.attempted = (change, run.resources) if change else None
    confirmation.note_move_ordered(run, cpus)
    allocation.outbox.put(instructions.Pin(run.id, replace(change or ResourceUpdate(), cpus=cpus)))


def _due_change(allocation: Allocation, run: RunCPUs, target: CPUAllocation) -> ResourceUpdate | None:
    request, machine = allocation.pods[run.uid].pod.request, allocation.ledger.machine
    return cpu_moves.change_of(run, target, request, machine, allocation.policy)
