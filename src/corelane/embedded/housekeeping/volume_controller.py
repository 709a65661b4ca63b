"""Binds claims to persistent volumes, and keeps their phases; see `volume_binding` for what is done when."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

from corelane.embedded.housekeeping import volume_binding
from corelane.embedded.housekeeping.event_recorder import EventRecorder
from corelane.embedded.housekeeping.volume_binding import Action, Notice, Patch, StorageFacts
from corelane.embedded.housekeeping.work_queue import WorkQueue
from corelane.kube.client import APIError, KubeClient
from corelane.kube.informer import Informer, Key, ObjectChange
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

COMPONENT: Final = "persistentvolume-controller"
"""Upstream's name of the reporter in events."""
RESYNC_SECONDS: Final = 15.0
"""Upstream's `--pvclaimbinder-sync-period`."""
_RETRY_SECONDS: Final = 0.5
_GATHER_SECONDS: Final = 0.05

WorkKey: TypeAlias = tuple[Literal["claim", "volume"], Key]


class VolumeController:
    """Give it the changes of pods, and `run` it until cancelled; `informers` watch the other kinds."""

    def __init__(
        self,
        client: KubeClient,
        nodes: Callable[[], Mapping[Key, Node]],
        *,
        failed: Callable[[str, Exception], None] = lambda _what, _error: None,
        clock: Callable[[], float] = time.time,
        observe: Callable[[ObjectChange[Any]], None] = lambda _: None,
    ) -> None:
        """`nodes` is the informer's copy, `failed` a report, `clock` gives Unix seconds.

        `observe` gets every change that is watched here.
        """
        self._observe = observe
        self._client = client
        self._node_copy = nodes
        self._failed = failed
        self._queue: WorkQueue[WorkKey] = WorkQueue()
        self._events = EventRecorder(client, COMPONENT, clock=clock)
        self._users: defaultdict[Key, dict[Key, Pod]] = defaultdict(dict)
        self._claims = Informer(client, PersistentVolumeClaim, handler=self._claim_changed)
        self._volumes = Informer(client, PersistentVolume, handler=self._volume_changed)
        self._classes = Informer(client, StorageClass, handler=self._class_changed)
        self.informers: tuple[Informer[Any], ...] = (self._classes, self._volumes, self._claims)

    async def run(self) -> None:
        """Work until cancelled, once `informers` have listed their objects."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run(self._reconcile))
            group.create_task(self._resync())

    async def _resync(self) -> None:
        """Look at everything again from time to time: matches also depend on nodes, and on what failed."""
        while True:
            await asyncio.sleep(RESYNC_SECONDS)
            self._add_unbound()
            for key in self._volumes.objects:
                self._queue.add(("volume", key))

    # Changes.

    def pod_changed(self, change: ObjectChange[Pod]) -> None:
        """Remember which pods use a claim, and look at the claim again."""
        old, new = (set(_claims_of(pod)) if pod else set() for pod in (change.old, change.new))
        for key in old - new:
            if change.old:
                self._users[key].pop(change.old.key, None)
                if not self._users[key]:
                    del self._users[key]
        for key in new:
            if change.new:
                self._users[key][change.new.key] = change.new
        for key in old | new if _moved(change) else ():
            self._queue.add(("claim", key))

    def _class_changed(self, change: ObjectChange[StorageClass]) -> None:
        self._observe(change)
        self._add_unbound()

    def _claim_changed(self, change: ObjectChange[PersistentVolumeClaim]) -> None:
        self._observe(change)
        for claim in filter(None, (change.new, change.old)):
            self._queue.add(("claim", claim.key))
            if claim.spec.volume_name:
                self._queue.add(("volume", ("", claim.spec.volume_name)))
        if change.new is None and change.old is not None:
            for volume in self._volumes.objects.values():
                reference = volume.spec.claim_ref
                if reference and (reference.namespace, reference.name) == change.old.key:
                    self._queue.add(("volume", volume.key))

    def _volume_changed(self, change: ObjectChange[PersistentVolume]) -> None:
        self._observe(change)
        for volume in filter(None, (change.new, change.old)):
            self._queue.add(("volume", volume.key))
            reference = volume.spec.claim_ref
            if reference:
                self._queue.add(("claim", (reference.namespace, reference.name)))
        if change.new and change.new.spec.claim_ref is None:
            self._add_unbound()

    def _add_unbound(self) -> None:
        for claim in self._claims.objects.values():
            if claim.status.phase != "Bound" or claim.metadata.deletion_timestamp:
                self._queue.add(("claim", claim.key), _GATHER_SECONDS)

    # Work.

    async def _reconcile(self, key: WorkKey) -> None:
        what = f"PersistentVolume{'Claim' if key[0] == 'claim' else ''} {'/'.join(filter(None, key[1]))}"
        try:
            actions = await (self._of_claim(key[1]) if key[0] == "claim" else self._of_volume(key[1]))
            for action in actions:
                await self._carry_out(action)
        except APIError as error:
            self._queue.add(key, _RETRY_SECONDS)
            if error.code not in (404, 409):
                self._failed(what, error)
        except ValueError as error:
            self._failed(what, error)

    async def _of_claim(self, key: Key) -> Iterable[Action]:
        claim = self._claims.objects.get(key)
        return volume_binding.claim_actions(claim, self._facts()) if claim else ()

    async def _of_volume(self, key: Key) -> Iterable[Action]:
        volume = self._volumes.objects.get(key)
        return volume_binding.volume_actions(volume, await self._claim_of(volume)) if volume else ()

    async def _claim_of(self, volume: PersistentVolume) -> PersistentVolumeClaim | None:
        """Return the claim a volume names; one that the copy does not have is asked for. Raises APIError."""
        reference = volume.spec.claim_ref
        if reference is None or not reference.uid:
            return None
        claim = self._claims.objects.get((reference.namespace, reference.name))
        if claim is None or claim.metadata.uid != reference.uid:
            return await self._ask(reference.namespace, reference.name)
        return claim

    async def _ask(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        try:
            return await self._client.get(PersistentVolumeClaim, name, namespace)
        except APIError as error:
            if error.code == 404:
                return None
            raise

    def _facts(self) -> StorageFacts:
        return StorageFacts(
            self._volumes.objects,
            self._classes.objects,
            self._node_copy(),
            lambda claim: self._users.get(claim.key, {}).values(),
        )

    async def _carry_out(self, action: Action) -> None:
        match action:
            case Patch(target, body, subresource):
                meta = target.metadata
                await self._client.patch(
                    type(target), meta.name, body, namespace=meta.namespace or None, subresource=subresource
                )
            case Notice(about, kind, reason, message):
                await self._events.record(about, kind, reason, message)
            case volume_binding.SyncClaim(claim):
                self._queue.add(("claim", claim.key))


def _claims_of(pod: Pod) -> Iterable[Key]:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim:
            yield pod.metadata.namespace, volume.persistent_volume_claim.claim_name


def _moved(change: ObjectChange[Pod]) -> bool:
    """Whether a pod came, went, was bound or ended."""
    if change.old is None or change.new is None:
        return True
    return (change.old.spec.node_name, change.old.ended) != (change.new.spec.node_name, change.new.ended)
