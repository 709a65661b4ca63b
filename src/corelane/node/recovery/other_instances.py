"""CPUs on which containers of other corelane instances of this machine run: held in the ledger as theirs.

They are never exclusive here while those containers run. CPUs of sets without a reserved CPU, as exclusive
containers have, leave the shared pool, too; others stay in it, as a shared pool does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from corelane.cpuset import CPUSet
from corelane.node.entries import Entry, Origin, Sharing
from corelane.node.ledger import NodeState, with_entries
from corelane.reasons.placements import OTHER_INSTANCES

OTHERS: Final = "other-instances"
"""UID under which the ledger holds these CPUs."""


Kind = Literal["container", "claim", "process", "unseen"]


@dataclass(frozen=True, slots=True)
class OtherContainer:
    """A running container of another instance: `owner` names that, `title` the container.

    Only a "container" takes its CPUs away from this instance. The other kinds are reported where they meet
    exclusive CPUs: a "claim" is a process that another user calls a container, a "process" one beside all
    containers that may not use all CPUs, and "unseen" stands for all that cannot be seen from here.
    """

    owner: str
    title: str
    cpus: CPUSet
    kind: Kind = "container"


def hold_others(state: NodeState, holders: Iterable[tuple[str, CPUSet]]) -> NodeState:
    """Return the ledger with the CPUs of other instances' containers held: by instance, allowed CPUs.

    CPUs that containers of this node are bound to, and reserved ones, are left out. Where the shared pool
    would lose its last CPU, it keeps them all.
    """
    entries = {key: entry for key, entry in state.entries.items() if entry.uid != OTHERS}
    pods = {uid: milli for uid, milli in state.pods.items() if uid != OTHERS}
    own = with_entries(state, entries, pods)
    free = own.usable.mask & ~own.bound.mask & ~own.reserved.mask if state.config.policy != "none" else 0
    alone = shared = 0
    holders = list(holders)
    for _, cpus in holders:
        if cpus.mask & own.reserved.mask:
            shared |= cpus.mask
        else:
            alone |= cpus.mask
    if not own.shared_pool.mask & ~(alone & free):
        alone, shared = 0, shared | alone
    for name, mask, sharing in (
        ("exclusive", alone & free, Sharing.ALONE),
        ("shared", shared & free & ~alone, Sharing.POOL),
    ):
        if mask:
            owners = ":".join(sorted({owner for owner, cpus in holders if cpus.mask & mask}))
            pod = f"{OTHER_INSTANCES}{owners}"
            entry = Entry(
                OTHERS, name, pod, CPUSet.from_mask(mask), sharing, origin=Origin.ADOPTED, allocator="other"
            )
            entries[entry.key] = entry
            pods[OTHERS] = 1000 * (alone & free).bit_count()
    unchanged = entries == dict(state.entries) and pods == dict(state.pods)
    return state if unchanged else with_entries(state, entries, pods)
