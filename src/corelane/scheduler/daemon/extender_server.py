"""The HTTP server of the extender: filter, prioritize, bind and preempt, for a kube-scheduler.

The protocol is k8s.io/kube-scheduler/extender/v1: member names are read in any case, as Go reads them, and
written as its fields are called; a body that is not the protocol's is answered with 400. A refusal is in the
answer's Error, with status 200: of other answers, kube-scheduler shows the status alone.
"""

import asyncio
import base64
import hmac
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ssl import SSLContext
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
from aiohttp import web

from corelane import structured_log
from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.decode import Malformed, decode_object
from corelane.kube.pod import Pod
from corelane.scheduler.daemon.http import Server, is_loopback, json_answer
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.extender import Extender
from corelane.scheduler.failures import described, raised_by
from corelane.scheduler.state import DecisionReporter, Outcome

T = TypeVar("T")
_NOTHING: Final = (b"", b"null")


class ExtenderError(ValueError):
    """A request that is not the protocol's; the message names the member and the remedy."""


@dataclass(frozen=True, slots=True)
class NodesArgs:
    """A pod and the nodes in question; `raw` has whole Node objects where they were sent so."""

    pod: Pod
    names: tuple[str, ...]
    raw: Mapping[str, msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True)
class BindArgs:
    """A pod to be bound to a node."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class PreemptArgs:
    """A pod, and by node the UIDs of the pods to be evicted and how many budgets that violates."""

    pod: Pod
    victims: Mapping[str, tuple[tuple[str, ...], int]]


class _Meta(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Named(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


def nodes_args(body: bytes) -> NodesArgs:
    """Read ExtenderArgs. Raises ExtenderError."""
    members = _members(body)
    pod = _pod(members)
    if _given(members, "nodenames"):
        return NodesArgs(pod, tuple(_member(members, "NodeNames", list[str])))
    if not _given(members, "nodes"):
        raise ExtenderError("neither NodeNames nor Nodes is set; set nodeCacheCapable: true for the extender")
    items = _member(members, "Nodes", _NodeList).items or []
    raw = {_decoded("Nodes.items", one, _Named).metadata.name: one for one in items}
    return NodesArgs(pod, tuple(raw), raw)


def bind_args(body: bytes) -> BindArgs:
    """Read ExtenderBindingArgs. Raises ExtenderError."""
    members = _members(body)
    names = ("PodNamespace", "PodName", "PodUID", "Node")
    values = [_member(members, name, str) if _given(members, name.lower()) else "" for name in names]
    if missing := [name for name, value in zip(names, values, strict=True) if not value]:
        raise ExtenderError(f"{missing[0]}: missing; a binding names pod, namespace, UID and node")
    return BindArgs(*values)


def preempt_args(body: bytes) -> PreemptArgs:
    """Read ExtenderPreemptionArgs, with whole victims or their UIDs. Raises ExtenderError."""
    members = _members(body)
    meta = _given(members, "nodenametometavictims")
    key = "NodeNameToMetaVictims" if meta else "NodeNameToVictims"
    victims: dict[str, Any] = _member(members, key, dict[str, Any]) if _given(members, key.lower()) else {}
    return PreemptArgs(_pod(members), {node: _victims(key, node, value) for node, value in victims.items()})


def _victims(key: str, node: str, value: Any) -> tuple[tuple[str, ...], int]:
    try:
        members = {name.lower(): member for name, member in (value or {}).items()}
        pods = [{name.lower(): member for name, member in pod.items()} for pod in members.get("pods") or []]
        uids = tuple(str(pod.get("uid") or pod["metadata"]["uid"]) for pod in pods)
        return uids, int(members.get("numpdbviolations") or 0)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ExtenderError(f"{key}.{node}: victims cannot be read: {error!r}") from error


def _members(body: bytes) -> dict[str, msgspec.Raw]:
    members = _decoded("body", body, dict[str, msgspec.Raw])
    return {name.lower(): value for name, value in members.items()}


def _given(members: Mapping[str, msgspec.Raw], key: str) -> bool:
    return key in members and bytes(members[key]).strip() not in _NOTHING


def _pod(members: Mapping[str, msgspec.Raw]) -> Pod:
    if not _given(members, "pod"):
        raise ExtenderError("Pod: missing; send the pod to be scheduled")
    pod = decode_object(Pod, members["pod"])
    if isinstance(pod, Malformed):
        raise ExtenderError(f"Pod: not what kube-scheduler sends: {pod.error}")
    if not pod.metadata.uid or not pod.metadata.name:
        raise ExtenderError("Pod.metadata: name or uid is missing")
    return pod


def _member(members: Mapping[str, msgspec.Raw], name: str, kind: Any) -> Any:
    return _decoded(name, members[name.lower()], kind)


def _decoded(where: str, data: Any, kind: Any) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise ExtenderError(f"{where}: not what kube-scheduler sends: {error}") from error


_log = structured_log.get_logger("corelane.scheduler")
LARGEST_BODY: Final = 64 << 20
"""Bytes: some 5,000 whole Node objects; names alone are far fewer."""
_PODS: Final = 2000
"""Pods kept between their Filter and their Bind; others are read from the API server."""
_BIND_SECONDS: Final = 30.0
Handler: TypeAlias = Callable[[bytes, Scheduler], Awaitable[Any]]


class NotBound(Exception):  # noqa: N818 - an answer
    """A binding was not carried out, or its outcome is not known; the message says why."""


class BindingOutcomes(DecisionReporter):
    """Hands the outcome of a binding to the request that waits for it."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[asyncio.Future[tuple[Outcome, str]]]] = {}

    def expect(self, uid: str) -> asyncio.Future[tuple[Outcome, str]]:
        """Return a future of the outcome of this pod's binding."""
        future: asyncio.Future[tuple[Outcome, str]] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(uid, []).append(future)
        return future

    def forget(self, uid: str, future: asyncio.Future[tuple[Outcome, str]]) -> None:
        """Stop to wait."""
        futures = [one for one in self._waiting.pop(uid, []) if one is not future]
        if futures:
            self._waiting[uid] = futures

    def binding_ended(self, now: float, uid: str, outcome: Outcome, message: str) -> None:
        for future in self._waiting.pop(uid, []):
            if not future.done():
                future.set_result((outcome, message))

    def denied(self, now: float, uid: str, plugin: str, message: str) -> None:
        self.binding_ended(now, uid, "released", f"{plugin}: {message}")

    def gone(self, now: float, uid: str) -> None:
        self.binding_ended(now, uid, "vanished", "the pod was deleted")


@dataclass(frozen=True, slots=True)
class Gate:
    """What a request must have before its body is read: web pages in a browser on the machine have it not."""

    on_loopback: bool
    token: str = ""

    def refusal(self, request: web.BaseRequest) -> tuple[int, str] | None:
        """Return status and reason of a refusal; None where the request is accepted."""
        if self.token and not self._has_token(request.headers.get("Authorization", "")):
            return 401, "no valid token; put it into urlPrefix as http://corelane:TOKEN@ADDRESS:PORT"
        if "Origin" in request.headers:
            return 403, "header Origin: requests of web pages are refused"
        host = request.headers.get("Host", "")
        if self.on_loopback and not is_loopback(_hostname(host)):
            return 403, f"header Host {host[:100]!r}: not a loopback address; use 127.0.0.1 in urlPrefix"
        if request.content_type != "application/json":
            return 415, f"Content-Type {request.content_type[:100]!r}: use application/json"
        return None

    def _has_token(self, header: str) -> bool:
        """Whether the token is there, as bearer token or as the password that urlPrefix may hold."""
        scheme, _, given = header.strip().partition(" ")
        if scheme.lower() == "basic":
            with suppress(ValueError):
                given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given.strip().encode(errors="replace"), self.token.encode())


def _hostname(host: str) -> str:
    """Return the name or address of a Host header."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class Leading(Protocol):
    """What has the scheduler that leads; None while none does."""

    @property
    def scheduler(self) -> Scheduler | None: ...


class ExtenderServer(Server):
    """Serves the protocol's verbs below `/`."""

    def __init__(self, daemon: Leading, client: KubeClient, outcomes: BindingOutcomes) -> None:
        self._daemon, self._client, self._outcomes = daemon, client, outcomes
        self._extenders: tuple[Scheduler, Extender] | None = None
        self._pods: OrderedDict[str, Pod] = OrderedDict()
        app = web.Application(client_max_size=LARGEST_BODY)
        handlers: Mapping[str, Handler] = {
            "filter": self._filter,
            "prioritize": self._prioritize,
            "bind": self._bind,
            "preempt": self._preempt,
        }
        for verb, handler in handlers.items():
            app.router.add_post(f"/{verb}", self._answering(handler))
        super().__init__("extender", app)
        self._gate = Gate(on_loopback=True)

    async def start(self, address: str, port: int, tls: SSLContext | None = None, token: str = "") -> int:
        """Listen, and return the port; with a token, requests must have it. Raises OSError."""
        self._gate = Gate(is_loopback(address), token)
        return await super().start(address, port, tls)

    def _answering(self, handler: Handler) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def answer(request: web.Request) -> web.Response:
            if refusal := self._gate.refusal(request):
                status, why = refusal
                return json_answer({"Error": f"{request.path}: {why}"}, status)
            if self._gate.token and self.listener:
                self.listener.prove(request.protocol)
            scheduler = self._daemon.scheduler
            if scheduler is None or not scheduler.synced:
                why = "this replica does not lead, or has not listed the cluster"
                return json_answer({"Error": why}, 503)
            try:
                return json_answer(await handler(await request.read(), scheduler))
            except ExtenderError as error:
                return json_answer({"Error": f"{request.path}: {error}"}, 400)
            except web.HTTPRequestEntityTooLarge:
                why = f"body: more than {LARGEST_BODY >> 20} MiB; set nodeCacheCapable: true for the extender"
                return json_answer({"Error": f"{request.path}: {why}"}, 413)
            except Exception as error:
                plugin = raised_by(error, self._extender(scheduler).profile)
                if not plugin:
                    raise
                # Answers to Prioritize and Preempt have no place for an error.
                status = 200 if handler in (self._filter, self._bind) else 500
                return json_answer({"Error": described(plugin, error)}, status)

        return answer

    def _extender(self, scheduler: Scheduler) -> Extender:
        if self._extenders is None or self._extenders[0] is not scheduler:
            core = scheduler.core
            self._extenders = scheduler, Extender(core.profile, core.cluster)
        return self._extenders[1]

    async def _filter(self, body: bytes, scheduler: Scheduler) -> Any:
        args = nodes_args(body)
        pod = args.pod
        self._pods.pop(pod.metadata.uid, None)
        self._pods[pod.metadata.uid] = pod
        while len(self._pods) > _PODS:
            self._pods.popitem(last=False)
        verdicts = self._extender(scheduler).verdicts(args.pod, args.names)
        nodes = None if args.raw is None else {"items": [args.raw[name] for name in verdicts.fitting]}
        return {
            "Nodes": nodes,
            "NodeNames": None if args.raw is not None else list(verdicts.fitting),
            "FailedNodes": verdicts.failed,
            "FailedAndUnresolvableNodes": verdicts.unresolvable,
            "Error": "",
        }

    async def _prioritize(self, body: bytes, scheduler: Scheduler) -> Any:
        args = nodes_args(body)
        scores = self._extender(scheduler).priorities(args.pod, args.names)
        return [{"Host": name, "Score": score} for name, score in scores]

    async def _preempt(self, body: bytes, scheduler: Scheduler) -> Any:
        """Keep the nodes where the victims' CPUs are what the pod needs."""
        args, extender = preempt_args(body), self._extender(scheduler)
        candidates = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}
            for node, (uids, violations) in args.victims.items()
            if extender.still_fits(args.pod, node, frozenset(uids))
        }
        return {"NodeNameToMetaVictims": candidates}

    async def _bind(self, body: bytes, scheduler: Scheduler) -> Any:
        args = bind_args(body)
        try:
            await self._bound(args, scheduler)
        except NotBound as error:
            return {"Error": f"pod {args.namespace}/{args.name}: {error}"}
        return {"Error": ""}

    async def _bound(self, args: BindArgs, scheduler: Scheduler) -> None:
        """Claim, send and wait for the outcome; one that is under way to the same node is waited for."""
        core, extender = scheduler.core, self._extender(scheduler)
        claimed = core.cluster.node_of(args.uid)
        if claimed not in {None, args.node}:
            raise NotBound(f"already being bound to node {claimed}; node {args.node} requested")
        outcome = self._outcomes.expect(args.uid)
        try:
            if claimed is None:
                pod = await self._pod(args)
                scheduler.request_bind(pod, args.node, extender.profile)
                if core.cluster.node_of(args.uid) is None and not outcome.done():
                    verdicts = extender.verdicts(pod, [args.node])
                    why = {**verdicts.failed, **verdicts.unresolvable}.get(args.node, "rejected")
                    raise NotBound(f"no longer fits on node {args.node}: {why}")
            elif args.uid not in core.bindings:
                return  # the informer has shown it bound there
            async with asyncio.timeout(_BIND_SECONDS):
                result, why = await outcome
        except TimeoutError:
            doing = f"outcome of the binding to node {args.node} not known yet,"
            if core.bindings.holds(args.uid):
                doing = f"{core.bindings[args.uid].doing};"
            raise NotBound(f"{doing} its CPUs stay claimed") from None
        finally:
            self._outcomes.forget(args.uid, outcome)
        if result != "bound":
            raise NotBound(why or result)

    async def _pod(self, args: BindArgs) -> Pod:
        """Return the pod of the last Filter, or read it."""
        if (filtered := self._pods.pop(args.uid, None)) is not None:
            return filtered
        try:
            pod = await self._client.get(Pod, args.name, args.namespace)
        except APIError as error:
            raise NotBound(f"the pod cannot be read: {error}") from error
        if pod.metadata.uid != args.uid:
            raise NotBound(f"UID {args.uid} requested, the pod of this name has UID {pod.metadata.uid}")
        return pod
