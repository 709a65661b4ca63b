"""The pods of one node, and which of their containers a message is about."""

from corelane.agent import runs
from corelane.agent.pods import Container, Pod, Stage


class PodIndex:
    """Pods by UID, and their containers by the ids of their runs."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        self._runs: dict[str, tuple[Pod, Container]] = {}

    def note_run(self, run_id: str, pod: Pod, container: Container) -> None:
        """That run is of this container."""
        self._runs[run_id] = pod, container

    def drop_run(self, run_id: str) -> None:
        """Nobody will ask for that run any more."""
        self._runs.pop(run_id, None)

    def ordered(self, uid: str, name: str, attempt: int) -> tuple[Pod, Container] | None:
        """The container that waits for the answer about this start, if it still does."""
        pod = self.pods.get(uid)
        container = pod and pod.containers.get(name)
        if not pod or not container or container.stage is not Stage.STARTING or container.attempt != attempt:
            return None
        return pod, container

    def by_id(self, run_id: str) -> tuple[Pod | None, Container | None]:
        """The container whose live run this is, and its pod."""
        pod, container = self._runs.get(run_id, (None, None))
        if container is None or container.id != run_id or not container.live:
            return None, None
        return pod, container

    def live(self) -> list[tuple[Container, str]]:
        """The containers that have an id and may have processes, with the UIDs of their pods."""
        every = ((one, pod.uid) for pod in self.pods.values() for one in pod.containers.values())
        return [(container, uid) for container, uid in every if container.id and container.live]

    def run_of(self, namespace: str, name: str, container: str, *, previous: bool) -> str:
        """The id of a container's current (or last) run, or of the one before; empty if there is none."""
        for pod in self.pods.values():
            if (pod.plan.request.namespace, pod.plan.request.name) == (namespace, name):
                found = pod.containers.get(container)
                return runs.run_id(found, previous=previous) if found else ""
        return ""
