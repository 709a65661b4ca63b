"""All NodeResourceTopologies of a cluster, in the newest version of the API that it serves."""

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.objects import NodeResourceTopology, NodeResourceTopologyV1Alpha1


async def list_topologies(client: KubeClient) -> tuple[NodeResourceTopology, ...]:
    """Return the objects; none where the cluster does not define the kind. Raises APIError."""
    for kind in (NodeResourceTopology, NodeResourceTopologyV1Alpha1):
        try:
            return (await client.list(kind)).items
        except APIError as error:
            if error.code != 404:
                raise
    return ()
