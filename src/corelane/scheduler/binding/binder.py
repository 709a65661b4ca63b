"""Carries out bindings and look-ups: a fixed number of workers send what waits, in order.

A binding with work for PreBind plugins waits for it in a task of its own, because such work (a volume that is
provisioned) takes minutes; it takes a worker only once that is done. Answers go to the core as events.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias, TypeVar

from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.scheduler.binding.bindings import BindingOrder
from corelane.scheduler.cluster.nodes import ERROR, SKIP, SUCCESS
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    EventSink,
    LookUpFailed,
    PodLookedUp,
    PreBindFailed,
)
from corelane.scheduler.framework.checked import is_ours
from corelane.scheduler.framework.plugin import BindContext, PreBindError
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, LookUpPod

T = TypeVar("T")
WORKERS: Final = 32
PLUGIN_SECONDS: Final = 120.0
"""A Bind or PostBind plugin that takes longer is stopped: it keeps a worker from other bindings."""
_PROOFS: Final = frozenset({400, 401, 403, 404, 405, 413, 415, 422})
"""Answers of the API server that prove that a binding was not carried out, now or later."""

Outcome: TypeAlias = Literal["rejected", "throttled", "conflict", "unknown"]


class UnboundError(Exception):
    """Every Bind plugin left the pod to the next: nothing was sent."""


class BinderReporter:
    """Hooks for logs, metrics and tests, empty by default. Times are in s."""

    def bound(self, pod: Pod, node: str, seconds: float) -> None:
        """The API server accepted the binding, after that many seconds."""

    def bind_failed(self, pod: Pod, node: str, error: APIError) -> None:
        """The API server did not accept the binding, or did not answer."""

    def bind_dropped(self, pod: Pod, node: str, why: str) -> None:
        """A binding was not sent, because the pod or the node is gone."""

    def looked_up(self, pod: Pod, node: str) -> None:
        """A pod with an uncertain binding was read; `node` is "" without one or without the pod."""

    def look_up_failed(self, pod: Pod, error: APIError) -> None:
        """A pod with an uncertain binding could not be read; it is tried again."""

    def extension_point(self, name: str, plugin: str, seconds: float, *, ok: bool) -> None:
        """A plugin's `pre_bind`, `bind` or `post_bind` ended."""

    def ran(self, pod: Pod, point: str, seconds: float, status: str) -> None:
        """The plugins of PreBind, Bind or PostBind have run for a pod; `status` is kube-scheduler's name.

        Bind includes the request to the API server. A binding that must not be sent has none.
        """

    def plugin_failed(self, plugin: str, what: str, error: Exception) -> None:
        """A plugin raised an error that it must not raise; it is treated as a failure of this pod."""


class BindingCore(EventSink, Protocol):
    """The core that decides about bindings, and takes their answers as events."""

    def unsendable(self, bind: Bind) -> str:
        """Return why a binding must not be sent any more; "" if it may."""

    def profile(self, scheduler_name: str) -> Profile:
        """Return the profile whose plugins bind the pods of this schedulerName."""


class Binder:
    """Bindings and look-ups that wait, and the workers that send them."""

    def __init__(
        self,
        client: KubeClient,
        core: BindingCore,
        *,
        reporter: BinderReporter | None = None,
        workers: int = WORKERS,
    ) -> None:
        self._client = client
        self._core = core
        self._reporter = reporter or BinderReporter()
        self._workers = workers
        self._waiting: deque[Bind | LookUpPod] = deque()
        self._order = BindingOrder()
        self._idle_workers: deque[asyncio.Future[None]] = deque()
        self._preparing: set[asyncio.Task[None]] = set()
        self._stoppable: dict[str, tuple[asyncio.Task[None], Bind]] = {}
        """Preparations by the pod's UID."""
        self._sending = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._all_sent = asyncio.Event()
        self._all_sent.set()

    @property
    def unfinished(self) -> int:
        """Number of instructions that wait, are prepared or under way."""
        return len(self._waiting) + len(self._order) + len(self._preparing) + self._sending

    def put(self, instruction: Bind | LookUpPod) -> None:
        """Carry out an instruction as soon as a worker is free, and the plugins' work is done."""
        self._idle.clear()
        if isinstance(instruction, Bind) and instruction.work:
            task = asyncio.get_running_loop().create_task(self._prepare(instruction))
            self._preparing.add(task)
            self._stoppable[instruction.pod.metadata.uid] = task, instruction
            task.add_done_callback(self._prepared)
            return
        if isinstance(instruction, Bind):
            self._reporter.ran(instruction.pod, "PreBind", 0.0, SUCCESS)
        self._enqueue(instruction)

    async def wait_idle(self) -> None:
        """Wait until nothing waits, is prepared or under way."""
        await self._idle.wait()

    def stop_preparing(self, uid: str, why: str) -> bool:
        """End the plugins' work for a pod, answered by PreBindFailed; False if none is under way."""
        task, bind = self._stoppable.pop(uid, (None, None))
        if task is None or bind is None or not task.cancel():
            return False
        self._pre_bind_failed(bind, bind.work[0].plugin, why)
        return True

    def abandon_preparations(self) -> None:
        """End the plugins' work for bindings that are not sent; nothing has happened to these pods yet."""
        for task in self._preparing:
            task.cancel()

    async def wait_sent(self) -> None:
        """Wait until every binding that waited for a worker has one."""
        await self._all_sent.wait()

    async def run(self) -> NoReturn:
        """Work until cancelled; what is under way then is abandoned."""
        try:
            await run_workers(self._workers, self._work)
        finally:
            self.abandon_preparations()

    def _enqueue(self, instruction: Bind | LookUpPod) -> None:
        if not (isinstance(instruction, Bind) and self._order.holds(instruction)):
            self._wait_for_worker(instruction)

    def _wait_for_worker(self, instruction: Bind | LookUpPod) -> None:
        self._waiting.append(instruction)
        self._all_sent.clear()
        while self._idle_workers:
            worker = self._idle_workers.popleft()
            if not worker.done():
                worker.set_result(None)
                return

    async def _work(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            while not self._waiting:
                self._set_idle()
                woken = loop.create_future()
                self._idle_workers.append(woken)
                await woken
            instruction = self._waiting.popleft()
            self._sending += 1
            if not self._waiting:
                self._all_sent.set()
            try:
                if isinstance(instruction, Bind):
                    await self._bind(instruction)
                else:
                    await self._look_up(instruction)
            finally:
                self._sending -= 1

    def _set_idle(self) -> None:
        if not self._sending and not self._waiting and not self._preparing:
            self._idle.set()

    # Bindings.

    async def _prepare(self, bind: Bind) -> None:
        """Have the plugins do their work, then enqueue the binding; a failure is reported to the core."""
        plugins = {plugin.name: plugin for plugin in self._profile_of(bind).pre_binds}
        context, begun, ok = BindContext(self._client, bind), now(), False
        try:
            for work in bind.work:
                try:
                    if (plugin := plugins.get(work.plugin)) is None:
                        raise PreBindError("the plugin is not enabled in the profile")
                    await self._timed("PreBind", plugin.name, plugin.pre_bind(context, work))
                except (PreBindError, APIError) as error:
                    self._pre_bind_failed(bind, work.plugin, str(error))
                    return
                except Exception as error:  # noqa: BLE001 - a third party's plugin must not end the scheduler
                    self._reporter.plugin_failed(work.plugin, "pre_bind", error)
                    self._pre_bind_failed(bind, work.plugin, f"{type(error).__name__}: {error}")
                    return
            ok = True
        finally:
            self._reporter.ran(bind.pod, "PreBind", now() - begun, SUCCESS if ok else ERROR)
        self._stoppable.pop(bind.pod.metadata.uid, None)
        self._enqueue(bind)

    def _pre_bind_failed(self, bind: Bind, plugin: str, message: str) -> None:
        uid = bind.pod.metadata.uid
        self._stoppable.pop(uid, None)
        self._core.handle(PreBindFailed(now(), uid, plugin, message))

    def _prepared(self, task: asyncio.Task[None]) -> None:
        self._preparing.discard(task)
        self._set_idle()

    async def _bind(self, bind: Bind) -> None:
        try:
            sent = await self._sent(bind)
        finally:
            if following := self._order.after(bind):
                self._wait_for_worker(following)
        if sent:
            begun, plugins = now(), self._profile_of(bind).post_binds
            for plugin in plugins:
                try:
                    async with asyncio.timeout(None if is_ours(plugin) else PLUGIN_SECONDS):
                        work = plugin.post_bind(BindContext(self._client, bind))
                        await self._timed("PostBind", plugin.name, work)
                except Exception as error:  # noqa: BLE001 - the pod is bound whatever a plugin does now
                    self._reporter.plugin_failed(plugin.name, "post_bind", error)
            self._reporter.ran(bind.pod, "PostBind", now() - begun if plugins else 0.0, SUCCESS)

    async def _sent(self, bind: Bind) -> bool:
        """Send a binding, and say what became of it; return whether the pod is bound."""
        uid, begun = bind.pod.metadata.uid, now()
        if why := self._core.unsendable(bind):
            self._drop(bind, why)
            return False
        try:
            await self._send(bind)
        except UnboundError as error:
            self._reporter.ran(bind.pod, "Bind", now() - begun, SKIP)
            self._drop(bind, str(error))
            return False
        except APIError as error:
            self._reporter.ran(bind.pod, "Bind", now() - begun, ERROR)
            self._reporter.bind_failed(bind.pod, bind.node, error)
            self._core.handle(BindFailed(now(), uid, outcome(error), str(error), error.retry_after))
            return False
        bound = now()
        self._reporter.ran(bind.pod, "Bind", bound - begun, SUCCESS)
        self._reporter.bound(bind.pod, bind.node, bound - begun)
        self._core.handle(BindSucceeded(bound, uid))
        return True

    def _drop(self, bind: Bind, why: str) -> None:
        self._reporter.bind_dropped(bind.pod, bind.node, why)
        self._core.handle(BindFailed(now(), bind.pod.metadata.uid, "rejected", why))

    def _profile_of(self, bind: Bind) -> Profile:
        return self._core.profile(bind.pod.spec.scheduler_name)

    async def _send(self, bind: Bind) -> None:
        """Let the first Bind plugin that takes the pod bind it. Raises APIError, UnboundError."""
        profile = self._profile_of(bind)
        for plugin in profile.binds:
            try:
                async with asyncio.timeout(None if is_ours(plugin) else PLUGIN_SECONDS):
                    work = plugin.bind(BindContext(self._client, bind))
                    if await self._timed("Bind", plugin.name, work):
                        return
            except APIError:
                raise
            except Exception as error:
                self._reporter.plugin_failed(plugin.name, "bind", error)
                # It may have bound the pod before: no code, so the outcome is unknown.
                why = f"plugin {plugin.name}: {type(error).__name__}: {error}"
                raise APIError(0, "PluginFailed", why) from error
        names = ", ".join(plugin.name for plugin in profile.binds) or "none is enabled"
        raise UnboundError(f"no Bind plugin of profile {profile.name} took the pod: {names}")

    async def _timed(self, point: str, plugin: str, work: Awaitable[T]) -> T:
        begun, ok = now(), False
        try:
            result = await work
            ok = True
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise RuntimeError("the plugin's own work was cancelled") from None
        finally:
            self._reporter.extension_point(point, plugin, now() - begun, ok=ok)
        return result

    # Look-ups.

    async def _look_up(self, look_up: LookUpPod) -> None:
        """Read the pod with the same UID; None only by the server's own answer that it does not exist."""
        pod, metadata, current = look_up.pod, look_up.pod.metadata, None
        try:
            current = await self._client.get(Pod, metadata.name, metadata.namespace)
        except APIError as error:
            if not (error.code == 404 and error.is_status):
                self._reporter.look_up_failed(pod, error)
                self._core.handle(LookUpFailed(now(), metadata.uid, str(error), error.retry_after))
                return
        if current is not None and current.metadata.uid != metadata.uid:
            current = None
        self._reporter.looked_up(pod, current.spec.node_name if current else "")
        self._core.handle(PodLookedUp(now(), metadata.uid, current))


def outcome(error: APIError) -> Outcome:
    """Return what an error of a binding proves: nothing, if it is not the API server's own answer."""
    if error.code == 429:
        return "throttled"
    if not error.is_status:
        return "unknown"
    if error.code == 409:
        return "conflict"
    return "rejected" if error.code in _PROOFS else "unknown"


async def run_workers(count: int, work: Callable[[], Coroutine[Any, Any, NoReturn]]) -> NoReturn:
    """Run so many tasks until cancelled."""
    async with asyncio.TaskGroup() as workers:
        for _ in range(count):
            workers.create_task(work())
    raise AssertionError("workers do not end")


def now() -> float:
    """Return the time of the core's events, in s."""
    return asyncio.get_running_loop().time()
