"""The extension points (KEP-624) as protocols over plain values, and what plugins return.

A plugin is a small object with a name and any of these methods; none of them does I/O but `pre_bind`, `bind`
and `post_bind`, which the shell runs. In the order of one attempt: PreEnqueue, QueueSort, PreFilter, Filter,
PostFilter, PreScore, Score, NormalizeScore, Reserve (and Unreserve), Permit, PreBind, Bind, PostBind.

A Filter may have a vectorised form (`feasible`) over rows of the node columns, a Score too (`scores`). A
plugin whose answer for a node follows from that node and the pod's shape alone has scope ROW: its vectors are
kept per shape, and computed again for changed rows only. Its `depends` says which changes count.

A vectorised form may be an estimate (attribute `exact` is false, the default for filters): a filter's then
states a necessary condition, a score's (that `depends` on CPUS only) an upper bound, and the finalists are
asked again by `filter` and `score`. What a finalist answers holds for its row, or where the filter says so
(`for_state`), for all rows in the same canonical state. A score may be the sum of `parts`, which differ in
what they depend on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from typing import Any, Final, Protocol, runtime_checkable

from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.reasons import Reason, sentence
from corelane.scheduler.cluster.columns import Rows
from corelane.scheduler.cluster.node_info import Admissions, NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo, Shape
from corelane.scheduler.framework.changes import ChangeKind, Hint
from corelane.scheduler.instructions import Bind, PreBindWork
from corelane.workload import SchedulerDefaults

# ruff: noqa: D101 - the methods say what a protocol is for


BEST: Final = 100.0
"""Scores are 0 to 100."""


class Scope(Enum):
    """Nodes on which the answer of a Filter or Score for a node depends, beside the pod's shape."""

    ROW = auto()
    """That node only."""
    CLUSTER = auto()
    """Other nodes too."""


class Depends(Flag):
    """Parts of a node at which a plugin of scope ROW looks."""

    NODE = auto()
    """The Node object: labels, taints, spec, images, allocatable amounts."""
    PODS = auto()
    """Pods on the node, requested amounts, CPUs."""
    CPUS = auto()
    """The canonical state of the node's CPUs, and nothing else: one answer for all nodes in that state."""


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Why a node cannot run a pod: a reason that many nodes share, and what differs between nodes."""

    reason: Reason
    detail: Reason | None = None

    @property
    def short(self) -> str:
        return sentence(self.reason)

    def __str__(self) -> str:
        return f"{self.short}: {sentence(self.detail)}" if self.detail else self.short


@dataclass(frozen=True, slots=True)
class Rejection:
    """A plugin keeps a pod off a node (from Filter), or off all nodes (from the other extension points).

    Not `resolvable` is upstream's UnschedulableAndUnresolvable: evicting pods cannot help.
    """

    plugin: str
    reasons: tuple[NodeReason, ...]
    resolvable: bool = True

    @classmethod
    def of(cls, plugin: str, *reasons: Reason, resolvable: bool = True) -> "Rejection":
        return cls(plugin, tuple(map(NodeReason, reasons)), resolvable)


class Rejections(Mapping[str, Rejection]):
    """Node name to its rejection; nodes with equal ones are groups of rows."""

    __slots__ = ("_by_name", "groups", "names")
    __hash__ = object.__hash__

    def __init__(self, groups: Sequence[tuple[Rejection, Rows]] = (), names: Sequence[str] = ()) -> None:
        self.groups = groups
        self.names = names
        """Node name by row."""
        self._by_name: dict[str, Rejection] | None = None

    def by_name(self) -> dict[str, Rejection]:
        if self._by_name is None:
            self._by_name = {self.names[row]: rejection for rejection, rows in self.groups for row in rows}
        return self._by_name

    def __getitem__(self, name: str) -> Rejection:
        return self.by_name()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name())

    def __len__(self) -> int:
        return sum(len(rows) for _, rows in self.groups)


class Skip:
    """Returned by `pre_filter` or `pre_score`: the plugin has nothing to do with this pod."""


SKIP: Final = Skip()


@dataclass(slots=True)
class Cycle:
    """One attempt to place one pod. Plugins keep what later steps need in `state`, by their name."""

    pod: PodInfo
    shape: Shape
    """The pod's, with the labels that other pods' CPU affinities look at, and the profile's defaults."""
    state: dict[str, Any] = field(default_factory=dict)
    only: frozenset[str] | None = None
    """Names of the only nodes in question, where a PreFilter knows them."""
    cluster: NodeCache = field(default_factory=NodeCache)
    """All nodes, pods on nodes and other objects, as they are now."""
    admissions: Admissions = field(default_factory=Admissions)
    """Answers about CPUs of the nodes that were asked."""
    filters: "tuple[FilterPlugin, ...]" = ()
    """The Filter plugins that have something to do with the pod."""

    def copy(self) -> "Cycle":
        """Return a copy in which pods can be added to and removed from nodes (`PreFilterExtensions`)."""
        state = {}
        for plugin, own in self.state.items():
            try:
                state[plugin] = own.copy() if hasattr(own, "copy") else own
            except Exception as error:
                raise StateError(plugin, error) from error
        return Cycle(self.pod, self.shape, state, self.only, self.cluster, filters=self.filters)


class StateError(RuntimeError):
    """A value that a plugin keeps in `Cycle.state` cannot be copied."""

    def __init__(self, plugin: str, error: Exception) -> None:
        super().__init__(f"its state cannot be copied: {type(error).__name__}: {error}")
        self.plugin = plugin


@dataclass(frozen=True, slots=True)
class Nomination:
    """The node where the pod will fit once the victims (pod UIDs) are gone, from PostFilter."""

    node: str
    victims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NotNominated:
    """A PostFilter found no node; the message is added to that of the pod's condition."""

    message: str
    keep: bool = False
    """Whether the pod keeps its nominated node, if it has one."""
    unfinished: bool = False
    """Too many nodes for one attempt: try the pod again at once."""
    doubtful: bool = False
    """With `unfinished`: other pods come first."""
    plugins: frozenset[str] = frozenset()
    """Names of those that reject the pod on some node without the pods to be evicted too."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Returned by `permit`: hold the pod, with its claim, until allowed or `seconds` are over."""

    seconds: float


@runtime_checkable
class Plugin(Protocol):
    """The part of every plugin: kube-scheduler's name where it has the plugin too."""

    name: str


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    def pre_enqueue(self, pod: PodInfo) -> Rejection | None:
        """Return why the pod must not be tried at all yet."""


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    def sort_key(self, pod: PodInfo) -> tuple[Any, ...]:
        """Return a key: pods with the least are tried first. One plugin of a profile has this."""


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    def pre_filter(self, cycle: Cycle) -> Rejection | Skip | None:
        """Prepare `cycle.state`; reject the pod on all nodes; or skip the plugin's Filter."""


@runtime_checkable
class IdlePlugin(PreFilterPlugin, Protocol):
    """A PreFilter that has nothing to do with most pods, and is not asked about each of them."""

    def idle(self, pod: PodInfo) -> bool:
        """Return whether `pre_filter` skips all plain pods (see `PodInfo`) of this one's shape."""


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """Methods of a plugin whose answer for a node depends on pods of other nodes too.

    Both change the plugin's `cycle.state` only, which has a method `copy`. A plugin that skips has none.
    """

    def add_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        """Answer from now on as if the pod were on the node too."""

    def remove_pod(self, cycle: Cycle, pod: PodInfo, node: NodeInfo) -> None:
        """Answer from now on as if the pod, which is on the node, were not."""


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """A Filter. Further members are optional: they answer for many nodes at once.

    - `feasible(cycle, columns, rows) -> Mask`: for each of the rows, whether `filter` may pass; with the
      attribute `exact`, whether it does.
    - `rejections(cycle, columns, rows) -> Iterable[tuple[Rejection, Rows]]`: groups that together have all of
      the rows, which the plugin rejects, with one answer each.
    - `depends: Depends`, of scope ROW: which parts of a node it looks at; PODS without it.
    - `passes_kind(cycle, kind: RowKind) -> bool`, where it depends on PODS: the answer of `feasible` for rows
      of the kind; asked instead of it about a few changed rows.
    - `room(cycle, columns, rows) -> Mask`, where `feasible` depends on CPUS: for each of the rows, whether
      the part that also depends on pods passes; `room_of_kind(cycle, kind) -> bool`: the same for a kind.
    - `for_state(cycle, rejection) -> bool`, where it depends on CPUS: whether `filter` has the same answer
      for every node in the same canonical state.
    """

    scope: Scope

    def filter(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        """Return why the pod cannot run on the node."""


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    def post_filter(self, cycle: Cycle, rejections: Mapping[str, Rejection]) -> Nomination | NotNominated:
        """No node fits: make one fit. `rejections` is by node; none where the pod itself is rejected."""


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    def pre_score(self, cycle: Cycle, nodes: Sequence[NodeInfo]) -> Skip | None:
        """Prepare `cycle.state` for the nodes that passed all filters; or skip the plugin's Score."""


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """A Score. Further members are optional.

    - `scores(cycle, columns, rows) -> Scores`: a score for each of the rows, an upper bound where the
      attribute `exact` is false.
    - `depends: Depends` as of a Filter; `score_of_kind(cycle, kind: RowKind) -> float`, of scope ROW: the
      answer of `scores` for rows of the kind.
    - `parts: Sequence[ScorePlugin]`, of scope ROW: scores that differ in what they depend on; their sum is
      this one.
    - `normalize(cycle, scores) -> Scores`: scores of 0 to `BEST`.
    - `details(cycle, node) -> Mapping[str, float]`: the values that make up a score, by name, for people.
    """

    scope: Scope

    def score(self, cycle: Cycle, node: NodeInfo) -> float:
        """Return 0 to `BEST` (any number if the plugin normalises) for a node that passed all filters."""


@runtime_checkable
class DefaultsPlugin(Plugin, Protocol):
    """A plugin whose arguments say what holds for pods that name no policy."""

    defaults: SchedulerDefaults


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    def reserve(self, cycle: Cycle, node: NodeInfo) -> Rejection | None:
        """Book what the plugin keeps for the pod on that node, before the binding."""

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """Undo `reserve`, also where it never came to it."""


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    def permit(self, cycle: Cycle, node: NodeInfo) -> Rejection | Wait | None:
        """Allow (None), reject, or hold the binding."""


class DecidePermit(Protocol):
    """Says what became of a pod (its UID) that the plugin of this name holds; of others it does nothing."""

    def __call__(self, uid: str, plugin: str, *, allowed: bool, message: str = "") -> None: ...


@runtime_checkable
class DecidingPermitPlugin(Plugin, Protocol):
    def decides_with(self, decide: DecidePermit) -> None:
        """Keep `decide`, to be called at any time, from any thread, and within `permit` too."""


@runtime_checkable
class EnqueueExtensions(Plugin, Protocol):
    def hints(self) -> Mapping[ChangeKind, Hint]:
        """Return which changes can help pods that this plugin rejected. Without it, every change can."""


# PreBind, Bind and PostBind: the extension points that do I/O. The shell runs them around the decision core.
#
# The core's claim comes first. It asks every plugin with `pre_bind_work` for a small value that says what to
# do, and puts these into the Bind instruction; the shell awaits `pre_bind` for each, sends the binding (or
# lets a plugin with `bind` do so), and awaits `post_bind`.


class PreBindError(Exception):
    """A plugin could not prepare a binding; the text becomes the pod's condition. The claim is released."""


@dataclass(frozen=True, slots=True)
class BindContext:
    """The argument of the plugins of a binding."""

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
    def pre_bind_work(self, cycle: Cycle, node: NodeInfo) -> PreBindWork | None:
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
