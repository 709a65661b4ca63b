"""DefaultBinder: bind a pod by a Binding, which carries the annotations with its CPUs."""

from corelane.scheduler.framework.binding import BindContext


class DefaultBinder:
    """Sends what the core decided; the API server merges annotations and node into the pod in one write."""

    name = "DefaultBinder"

    async def bind(self, context: BindContext) -> bool:
        """Bind the pod. Raises APIError."""
        pod, bind = context.pod.metadata, context.bind
        await context.client.bind(pod.namespace, pod.name, pod.uid, bind.node, bind.annotations)
        return True
