"""The NRI plugin as a service: socket, time, lock and reconnecting around `plugin`.

How an agent uses it::

    connection = NRIConnection(handlers, state_directory=directory, reporter=reporter)
    task = asyncio.create_task(connection.run())  # ends only when cancelled
    connection.status                             # for `corelane agent status`

`handlers` and `reporter` are called on the loop that runs `run`. The socket is served by a thread of its
own, so that the runtime gets its answer in time even while that loop is busy (a slow fsync, a large list
being decoded).

* `on_creating(event)` returns the new container's adjustment, and updates of others, within `budget`
  seconds (0.5; half of the runtime's own timeout where that is less). Save the ledger, write the cgroup
  files of the containers that shrink and read them back, then return their sets as `updates` too, so that
  the runtime's record agrees. Never call CRI in a handler: its updates wait for the lock that the runtime
  holds during the event.
* `on_updating(event)` returns updates: of the container itself, to keep its CPUs when a CRI client such as
  the kubelet sets others, and of others. An update through CRI by the agent itself arrives here as well: one
  that waited in the runtime while a handler decided otherwise is older than the ledger, so return what the
  ledger has now.
* `on_synchronized(event)` returns updates for what runs already. It comes after every connect: at first,
  after a restart of the runtime, and after this plugin was too slow.
* `on_event(event)` gets everything else, in order: containers started, updated, stopped and removed, pods,
  `Configured`, `Lost`, and `Unanswered`.

A handler that overruns is answered for: without adjustment, so the container starts in the shared pool.
`Unanswered` tells the agent, which repairs through CRI as with any drift. The handler itself is not
interrupted; its late answer is dropped, and with it the updates that were to bring the runtime's record
into line with files that the handler wrote. A handler that raises is treated in the same way.

A container may start without a question: while the plugin was away, or created by an event that an earlier
copy was killed in. The start of an unknown container is such a one, to be repaired through CRI.

Only the process that holds the locks of `acting_lock` connects. A second copy waits (`status.state` is
"waiting", and `detail` says for which process) and takes over when the first one ends. An agent that acts
without NRI too takes `state_lock` itself, before anything else, and passes it on as `lock`.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from corelane.runtime.nri.acting_lock import ActingLock, socket_lock, state_lock
from corelane.runtime.nri.plugin import Plugin, State
from corelane.runtime.nri.values import (
    NOTHING,
    Answer,
    Configured,
    ContainerCreating,
    ContainerUpdating,
    Event,
    Lost,
    Notification,
    Outcome,
    Question,
    RuntimeIdentity,
    ShutDown,
    Synchronized,
    Unanswered,
    Updates,
)

HANDSHAKE_SECONDS: Final = 30.0
"""From connecting to the synchronisation: the runtime serves one new plugin at a time, up to 5 s each."""
NO_RUNTIME: Final = "is the container runtime running, with NRI enabled?"
_READ_BYTES: Final = 1 << 18
_MAX_UNREAD_BYTES: Final = 8 << 20


class Host(Protocol):
    """What a session asks and reports to."""

    def ask(self, question: Question) -> Awaitable[Answer | None]:
        """Return the handler's answer, None where it raised. Cancelling leaves the handler alone."""

    def tell(self, event: Event) -> None:
        """Pass on an event that waits for no answer."""

    def finished(self, question: Question, seconds: float, outcome: Outcome) -> None:
        """Note what became of a question."""

    def failed(self, error: Exception) -> None:
        """Note an answer that cannot be sent."""


class Session:
    """One connection; `serve` is called once."""

    def __init__(self, plugin: Plugin, host: Host, budget: float) -> None:
        self._plugin, self._host, self._budget = plugin, host, budget
        self._writer: asyncio.StreamWriter | None = None
        self._answers: set[asyncio.Task[None]] = set()
        self._reason = ""

    @property
    def synchronized(self) -> bool:
        return self._plugin.state is State.SYNCHRONIZED

    async def serve(self, socket: Path) -> str:
        """Connect, register and serve; return why it ended."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS) as deadline:
                await self._serve(socket, deadline)
        except TimeoutError:
            self._close(f"no synchronization within {HANDSHAKE_SECONDS:g} s of connecting")
        except (FileNotFoundError, ConnectionRefusedError) as error:
            self._close(f"{error.strerror}: {NO_RUNTIME}")
        except OSError as error:
            self._close(error.strerror or str(error))
        finally:
            self._close("the plugin ended")
            for task in self._answers:
                task.cancel()
            await asyncio.gather(*self._answers, return_exceptions=True)
            if self._writer is not None:
                self._writer.close()
        return self._reason

    async def _serve(self, socket: Path, deadline: asyncio.Timeout) -> None:
        reader, self._writer = await asyncio.open_unix_connection(socket)
        self._plugin.register()
        self._flush()
        while self._plugin.state is not State.CLOSED:
            data = await reader.read(_READ_BYTES)
            arrived = asyncio.get_running_loop().time()
            if not data:
                self._close("the runtime closed the connection")
            for event in self._plugin.receive(data):
                self._take(event, arrived)
            self._flush()
            if self.synchronized:
                deadline.reschedule(None)

    def _take(self, event: Event, arrived: float) -> None:
        if isinstance(event, Synchronized | ContainerCreating | ContainerUpdating):
            task = asyncio.create_task(self._answer(event, arrived))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        else:
            if isinstance(event, Lost):
                self._reason = event.reason
            self._host.tell(event)

    async def _answer(self, question: Question, arrived: float) -> None:
        outcome: Outcome = "lost"
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(arrived + min(self._budget, question.timeout / 2)):
                answer = await self._host.ask(question)
            outcome = self._send(question, answer)
        except TimeoutError:
            outcome = "overrun" if self._plugin.answer(question.token, NOTHING) else "lost"
        finally:
            self._flush()
            self._host.finished(question, loop.time() - arrived, outcome)

    def _send(self, question: Question, answer: Answer | None) -> Outcome:
        """Send an answer; without adjustment where there is none, or where it cannot be expressed."""
        outcome: Outcome = "failed" if answer is None else "answered"
        try:
            sent = self._plugin.answer(question.token, answer or NOTHING)
        except Exception as error:  # noqa: BLE001 - the runtime must get an answer whatever a handler returns
            self._host.failed(error)
            sent, outcome = self._plugin.answer(question.token, NOTHING), "failed"
        return outcome if sent else "lost"

    def _flush(self) -> None:
        data = self._plugin.outgoing()
        if not data or self._writer is None:
            return
        self._writer.write(data)
        if self._writer.transport.get_write_buffer_size() > _MAX_UNREAD_BYTES:
            self._close(f"the runtime left {_MAX_UNREAD_BYTES} bytes unread")
            self._writer.transport.abort()

    def _close(self, reason: str) -> None:
        for event in self._plugin.close(reason):
            self._take(event, 0.0)


SOCKET: Final = Path("/var/run/nri/nri.sock")
BUDGET_SECONDS: Final = 0.5
FIRST_RETRY_SECONDS: Final = 0.1
LAST_RETRY_SECONDS: Final = 2.0

ConnectionState = Literal["stopped", "waiting", "connecting", "synchronized"]
Report = Notification | Configured | Unanswered | Lost | ShutDown


class Handlers(Protocol):
    """What the agent decides and takes note of."""

    async def on_synchronized(self, event: Synchronized) -> Updates:
        """Return updates of containers that run already."""

    async def on_creating(self, event: ContainerCreating) -> Answer:
        """Return the adjustment of a container being created, and updates of others."""

    async def on_updating(self, event: ContainerUpdating) -> Updates:
        """Return updates of the container being updated, and of others."""

    def on_event(self, event: Report) -> None:
        """Take note of an event that waits for no answer."""


class Reporter:
    """Hooks for metrics and logs; all empty."""

    def waiting(self, holder: str) -> None:
        """Another process holds the lock, or the lock cannot be had; `holder` says which file and why."""

    def connected(self, runtime: RuntimeIdentity) -> None:
        """The runtime synchronised this plugin, and calls it from now on."""

    def lost(self, reason: str) -> None:
        """There is no connection; called when the reason changes."""

    def handled(self, question: Question, seconds: float, outcome: Outcome) -> None:
        """A question was answered, or answered for, so many seconds after it arrived."""

    def failed(self, handler: str, error: Exception) -> None:
        """A handler raised."""


@dataclass(frozen=True, slots=True)
class ConnectionStatus:
    """State of the plugin for people. `detail` says what "waiting" and "connecting" wait for.

    `outcomes` counts questions by what became of them; `slowest_seconds` is the longest answered one.
    """

    state: ConnectionState = "stopped"
    detail: str = ""
    runtime: RuntimeIdentity = field(default_factory=RuntimeIdentity)
    synchronizations: int = 0
    outcomes: dict[Outcome, int] = field(default_factory=dict)
    slowest_seconds: float = 0.0


class NRIConnection:
    """Serves one runtime's events, for as long as `run` runs."""

    def __init__(
        self,
        handlers: Handlers,
        *,
        state_directory: Path,
        socket: Path = SOCKET,
        name: str = "corelane",
        index: str = "90",
        reporter: Reporter | None = None,
        budget: float = BUDGET_SECONDS,
        lock: ActingLock | None = None,
    ) -> None:
        """`lock` is one that the agent holds for as long as `run` runs, in place of one of its own."""
        self.status = ConnectionStatus()
        self._handlers, self._reporter = handlers, reporter or Reporter()
        self._socket, self._name, self._index, self._budget = socket, name, index, budget
        self._given_lock, self._socket_lock = lock, socket_lock(socket)
        self._state_lock = lock or state_lock(state_directory)
        self._outcomes: Counter[Outcome] = Counter()
        self._handling: set[asyncio.Task[Answer | None]] = set()
        self._agent_loop: asyncio.AbstractEventLoop
        self._nri_loop: asyncio.AbstractEventLoop

    async def run(self) -> None:
        """Serve until cancelled. Errors of sockets and locks are reported and retried, not raised."""
        self._agent_loop, self._nri_loop = asyncio.get_running_loop(), asyncio.new_event_loop()
        main = self._nri_loop.create_task(self._main())
        pool = ThreadPoolExecutor(1, "corelane-nri")
        serving = self._agent_loop.run_in_executor(pool, _serve, self._nri_loop, main)
        try:
            await asyncio.shield(serving)
        finally:
            with suppress(RuntimeError):  # a closed loop: serving has ended
                self._nri_loop.call_soon_threadsafe(main.cancel)
            await serving
            pool.shutdown()

    # The rest runs in the thread that serves the socket, unless it says otherwise.

    async def _main(self) -> None:
        try:
            await self._acquire()
            wait = FIRST_RETRY_SECONDS  # doubles until a connection gets as far as its synchronization
            for number in count(1):
                try:
                    reason = await self._serve_once(number)
                except Exception as error:  # noqa: BLE001 - a defect must not end the service
                    self._call(self._reporter.failed, "session", error)
                    reason = f"{self._socket}: {type(error).__name__}: {error}"
                synchronized = self.status.state == "synchronized"
                if reason != self.status.detail:
                    self._call(self._reporter.lost, reason)
                self._set(state="connecting", detail=reason)
                wait = FIRST_RETRY_SECONDS if synchronized else min(2 * wait, LAST_RETRY_SECONDS)
                await asyncio.sleep(wait)
        finally:
            self._socket_lock.release()
            if self._given_lock is None:
                self._state_lock.release()
            self._set(state="stopped", detail="")

    async def _acquire(self) -> None:
        while True:
            try:
                return await self._state_lock.acquire(self._waiting)
            except OSError as error:
                self._waiting(_no_lock(error))
            await asyncio.sleep(LAST_RETRY_SECONDS)

    def _waiting(self, holder: str) -> None:
        if holder != self.status.detail:
            self._set(state="waiting", detail=holder)
            self._call(self._reporter.waiting, holder)

    async def _serve_once(self, number: int) -> str:
        """Connect and serve; return why that ended. The lock beside the socket is kept for the next time."""
        try:
            await self._socket_lock.acquire(self._waiting)
        except FileNotFoundError as error:
            return f"{self._socket}: {error.strerror}: {NO_RUNTIME}"
        except OSError as error:
            return _no_lock(error)
        if self.status.state != "connecting":
            self._set(state="connecting", detail="")
        session = Session(Plugin(self._name, self._index, number), self, self._budget)
        return f"{self._socket}: {await session.serve(self._socket)}"

    def ask(self, question: Question) -> Awaitable[Answer | None]:
        if isinstance(question, Synchronized):
            runtime, count = self.status.runtime, self.status.synchronizations + 1
            self._set(state="synchronized", detail="", synchronizations=count)
            self._call(self._reporter.connected, runtime)
        answer: asyncio.Future[Answer | None] = self._nri_loop.create_future()
        self._on_agent_loop(self._start, question, answer)
        return answer

    def tell(self, event: Event) -> None:
        if isinstance(event, Configured):
            self._set(runtime=event.runtime)
        self._call(self._handlers.on_event, event)

    def finished(self, question: Question, seconds: float, outcome: Outcome) -> None:
        self._outcomes[outcome] += 1
        slowest = max(self.status.slowest_seconds, seconds if outcome == "answered" else 0.0)
        self._set(outcomes=dict(self._outcomes), slowest_seconds=slowest)
        if outcome != "answered":
            self._call(self._handlers.on_event, Unanswered(question, outcome, seconds))
        self._call(self._reporter.handled, question, seconds, outcome)

    def failed(self, error: Exception) -> None:
        self._call(self._reporter.failed, "answer", error)

    def _set(self, **changes: Any) -> None:
        self.status = replace(self.status, **changes)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        self._on_agent_loop(self._deliver, function, arguments)

    def _on_agent_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        with suppress(RuntimeError):  # the agent's loop is closed: the process ends
            self._agent_loop.call_soon_threadsafe(function, *arguments)

    # What follows runs on the agent's loop.

    def _deliver(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001 - one failing listener must not stop the others
            self._reporter.failed(function.__name__, error)

    def _start(self, question: Question, answer: asyncio.Future[Answer | None]) -> None:
        task = self._agent_loop.create_task(self._handle(question))
        self._handling.add(task)
        task.add_done_callback(partial(self._return, answer))

    def _return(self, answer: asyncio.Future[Answer | None], task: asyncio.Task[Answer | None]) -> None:
        self._handling.discard(task)
        result = None if task.cancelled() else task.result()
        with suppress(RuntimeError):  # the socket's loop is closed: no one waits for the answer
            self._nri_loop.call_soon_threadsafe(_resolve, answer, result)

    async def _handle(self, question: Question) -> Answer | None:
        try:
            if isinstance(question, ContainerCreating):
                return await self._handlers.on_creating(question)
            if isinstance(question, ContainerUpdating):
                return Answer(updates=await self._handlers.on_updating(question))
            return Answer(updates=await self._handlers.on_synchronized(question))
        except Exception as error:  # noqa: BLE001 - the runtime must get an answer whatever a handler does
            self._reporter.failed(type(question).__name__, error)
            return None


def _no_lock(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}: a writable directory is needed for the lock"


def _resolve(answer: asyncio.Future[Answer | None], result: Answer | None) -> None:
    if not answer.done():
        answer.set_result(result)


def _serve(loop: asyncio.AbstractEventLoop, main: asyncio.Task[None]) -> None:
    try:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
