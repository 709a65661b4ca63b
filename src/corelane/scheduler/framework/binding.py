"""PreBind, Bind and PostBind: the extension points that do I/O. The shell runs them around the decision core.

The core's claim comes first. It asks every plugin with `pre_bind_work` for a small value that says what to
do, and puts these into the Bind instruction; the shell awaits `pre_bind` for each, sends the binding (or lets
a plugin with `bind` do so), and awaits `post_bind`.
"""

# ruff: noqa: D101 - the methods say what a protocol is for

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.scheduler.framework.plugin import Cycle, Plugin
from corelane.scheduler.instructions import Bind, PreBindWork

if TYPE_CHECKING:
    from corelane.scheduler.cache.nodes import NodeInfo


class PreBindError(Exception):
    """A plugin could not prepare a binding; the text becomes the pod's condition. The claim is released."""


@dataclass(frozen=True, slots=True)
class BindContext:
    """What the plugins of a binding get."""

    client: KubeClient
    bind: Bind

    @property
    def pod(self) -> Pod:
        return self.bind.pod

    @property
    def node(self) -> str:
        return self.bind.node


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    def pre_bind_work(self, cycle: Cycle, node: "NodeInfo") -> PreBindWork | None:
        """Return what `pre_bind` has to do (pure, called by the core); None for nothing."""

    async def pre_bind(self, context: BindContext, work: PreBindWork) -> None:
        """Do it, in as much time as it takes, and limit that time. Raises PreBindError, APIError."""


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    async def bind(self, context: BindContext) -> bool:
        """Bind the pod in another way than by a Binding; False leaves it to the next. Raises APIError."""


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    async def post_bind(self, context: BindContext) -> None:
        """Do what follows a binding that was carried out; an error is reported and changes nothing."""
