"""`corelane scheduler`: the scheduler of a cluster, until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from corelane import input_files, structured_log
from corelane.kube.client import KubeClient
from corelane.kube.kubeconfig import SERVICE_ACCOUNT
from corelane.kube.leader_election import ElectionSettingsError, LeaderElector, LeaseSettings
from corelane.kube.meta import Object
from corelane.scheduler import profiles
from corelane.scheduler.daemon import garbage, http
from corelane.scheduler.daemon.daemon import SchedulerDaemon
from corelane.scheduler.daemon.extender_server import BindingOutcomes, ExtenderServer
from corelane.scheduler.daemon.log import LoggingReporter
from corelane.scheduler.daemon.metrics import DecisionReporters
from corelane.scheduler.daemon.pod_status_writer import Leadership
from corelane.scheduler.daemon.scheduler import Scheduler
from corelane.scheduler.explain.record import DecisionRing
from corelane.scheduler.framework import configuration as files
from corelane.scheduler.framework.configuration import Configuration, ConfigurationError
from corelane.scheduler.framework.profile import RegistryError
from corelane.scheduler.plugins import default
from corelane.scheduler.profiles import ConfigurationFile
from corelane.scheduler.queue.waiting import Backoff
from corelane.scheduler.state import DecisionReporter
from corelane.settings import SettingsError
from corelane.supervise import until_signal

PORT: Final = 10251
"""The port on which kube-scheduler once served the same pages without TLS."""
_NAMESPACE_FILE: Final = SERVICE_ACCOUNT / "namespace"
_DEFAULT_NAMESPACE: Final = "kube-system"
_TIMES: Final = {
    "duration": ("lease_duration", "leaseDuration", "--leader-elect-lease-duration"),
    "renew_deadline": ("renew_deadline", "renewDeadline", "--leader-elect-renew-deadline"),
    "retry_period": ("retry_period", "retryPeriod", "--leader-elect-retry-period"),
}
"""Option, field of the file and flag of a time of the lease."""


_LONGEST_TOKEN: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """Options of `corelane scheduler`; None is the value of the file, else the default. Times are in s."""

    kubeconfig: Path | None = None
    config: Path | None = None
    bind_address: str = "127.0.0.1"
    port: int = PORT
    leader_elect: bool | None = None
    lease_name: str | None = None
    lease_namespace: str | None = None
    lease_duration: float | None = None
    renew_deadline: float | None = None
    retry_period: float | None = None
    extender: bool = False
    listen: str = "127.0.0.1:10262"
    """Address and port of the extender."""
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    of_file: frozenset[str] = frozenset()
    """Options whose values are those of the file."""
    client_ca_file: Path | None = None
    """Authorities of the clients that the extender answers; None for any client."""
    extender_token_file: Path | None = None
    """File with the token that the extender asks for; None for no token."""


def with_file(options: SchedulerOptions) -> tuple[ConfigurationFile | None, SchedulerOptions]:
    """Return the file, and the options with what it sets where they are not given. Raises SettingsError."""
    if options.config is None:
        return None, options
    try:
        file = profiles.read(options.config)
        settings = file.configuration()
        form = settings.leader_election
        of_file: dict[str, Any] = {
            "leader_elect": form.leader_elect,
            "lease_name": form.resource_name or None,
            "lease_namespace": form.resource_namespace or None,
        }
        for option, field, _ in _TIMES.values():
            if (text := getattr(form, option)) is not None:
                of_file[option] = files.duration(text, file.source, f"leaderElection.{field}")
        if settings.kubeconfig:
            of_file["kubeconfig"] = Path(settings.kubeconfig)
    except (ConfigurationError, RegistryError) as error:
        raise SettingsError(str(error)) from error
    missing = {
        name: value for name, value in of_file.items() if value is not None and getattr(options, name) is None
    }
    return file, replace(options, **missing, of_file=frozenset(missing))


def lease_settings(options: SchedulerOptions) -> LeaseSettings | None:
    """Return where the lease is, and its times; None without leader election. Raises SettingsError."""
    if options.leader_elect is False:
        return None
    try:  # of the pod that this process runs in
        namespace = _NAMESPACE_FILE.read_text().strip() or _DEFAULT_NAMESPACE
    except OSError:
        namespace = _DEFAULT_NAMESPACE
    given: dict[str, Any] = {
        "name": options.lease_name or "corelane-scheduler",
        "namespace": options.lease_namespace or namespace,
        "duration": options.lease_duration,
        "renew_deadline": options.renew_deadline,
        "retry_period": options.retry_period,
    }
    try:
        return LeaseSettings(**{name: value for name, value in given.items() if value is not None})
    except ElectionSettingsError as error:  # name field or flag of the first of these settings that is given
        named = [_TIMES[setting] for setting in error.settings]
        of_user = (names for names in named if getattr(options, names[0]) is not None)
        option, field, flag = next(of_user, named[0])
        where = f"{options.config}: leaderElection.{field}" if option in options.of_file else flag
        raise SettingsError(f"{where}: {error}") from error


def extender_address(options: SchedulerOptions) -> tuple[str, int]:
    """Return address and port of the extender. Raises SettingsError."""
    address, colon, port = options.listen.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    if not colon or not address or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"--listen {options.listen}: not ADDRESS:PORT; give one such as 127.0.0.1:10262")
    return address, int(port)


def extender_tls(options: SchedulerOptions) -> ssl.SSLContext | None:
    """Return the certificate of the extender, None to serve plain HTTP. Raises SettingsError."""
    certificate, key = options.tls_cert_file, options.tls_private_key_file
    if not certificate and not key:
        if options.client_ca_file:
            raise SettingsError("--client-ca-file: needs --tls-cert-file and --tls-private-key-file")
        return None
    if not certificate or not key:
        raise SettingsError("--tls-cert-file and --tls-private-key-file: give both, or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        for file in (certificate, key):
            input_files.read(file, regular=True)  # OpenSSL waits for a pipe
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"certificate {certificate}, key {key}: cannot be used: {error}") from error
    if options.client_ca_file:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            input_files.read(options.client_ca_file, regular=True)
            context.load_verify_locations(options.client_ca_file)
        except (OSError, ssl.SSLError) as error:
            problem = f"cannot be used: {error}; give a file of PEM certificates"
            raise SettingsError(f"--client-ca-file {options.client_ca_file}: {problem}") from error
    return context


def extender_token(options: SchedulerOptions) -> str:
    """Return the token that the extender asks for, "" for none. Raises SettingsError."""
    path = options.extender_token_file
    if path is None:
        return ""
    option = f"--extender-token-file {path}"
    try:
        with os.fdopen(input_files.open_file(path, regular=True), "rb") as file:
            status, content = os.fstat(file.fileno()), file.read(_LONGEST_TOKEN + 1).strip()
    except OSError as error:
        raise SettingsError(f"{option}: {error.strerror}; give a file with one word") from error
    if status.st_mode & 0o077 or status.st_uid not in {os.getuid(), 0}:
        mode = f"mode {status.st_mode & 0o777:04o}, owner {status.st_uid}"
        raise SettingsError(f"{option}: readable by other users ({mode}); chmod 0600 it")
    if not 16 <= len(content) <= _LONGEST_TOKEN or not all(0x20 < byte < 0x7F for byte in content):
        wanted = f"one word of 16 to {_LONGEST_TOKEN} printable ASCII characters"
        raise SettingsError(f"{option}: not a token; write {wanted}, such as `openssl rand -hex 32` prints")
    return content.decode()


def identity() -> str:
    """Return a name that no other replica and no earlier process has, as client-go's."""
    return f"{os.uname().nodename}_{uuid.uuid4()}"


def main(options: SchedulerOptions, *, log_format: Literal["auto", "text", "json"] = "auto") -> int:
    """Run until SIGINT or SIGTERM. Raises the error that prevented the start."""
    file, options = with_file(options)
    lease = lease_settings(options)
    if options.extender:
        extender_address(options)
        extender_tls(options)
        extender_token(options)
    structured_log.configure(as_json=structured_log.AS_JSON[log_format])
    return asyncio.run(_run(options, file, lease))


async def _run(options: SchedulerOptions, file: ConfigurationFile | None, lease: LeaseSettings | None) -> int:
    name = identity()
    reporter = _Reporter(name, lease.name if lease else "")
    client = KubeClient.connect(options.kubeconfig)
    # The election has a client of its own: thousands of bindings under way must not delay a renewal.
    election = KubeClient.connect(options.kubeconfig)
    elector = LeaderElector(election, lease, name, reporter=reporter) if lease else None
    ring = DecisionRing()
    outcomes = BindingOutcomes()
    decisions = DecisionReporters(reporter, ring, outcomes)
    daemon = SchedulerDaemon(_Schedulers(client, file, name, reporter, decisions), reporter, elector)
    extender = ExtenderServer(daemon, client, outcomes)
    server = daemon.server()
    server.router.add_routes(http.routes(ring))
    garbage.collect_young()
    with until_signal(signal.SIGHUP) as stop:
        try:
            where = f"address {options.bind_address}, port {options.port}"
            with _naming(where, "give another with --bind-address or --port (0: any free)"):
                await server.start(options.bind_address, options.port)
            if options.extender:
                tls, token = extender_tls(options), extender_token(options)
                with _naming(f"--listen {options.listen}", "give another address or port"):
                    await extender.start(*extender_address(options), tls, token)
            await daemon.run(stop)
        finally:
            await extender.stop()
            await server.stop()
            await client.close()
            await election.close()
    return 0


@dataclass(frozen=True, slots=True)
class _Schedulers:
    """Makes a scheduler each time this replica leads, with plugins made anew: these have a state."""

    client: KubeClient
    file: ConfigurationFile | None
    name: str
    reporter: LoggingReporter
    decisions: DecisionReporter

    def new(self, lease: Leadership | None) -> Scheduler:
        configuration = self.file.configuration() if self.file else Configuration((default.profile(),))
        return Scheduler(
            self.client,
            profiles=configuration.profiles,
            backoff=Backoff(configuration.initial_backoff, configuration.max_backoff),
            reporter=self.reporter,
            decisions=self.decisions,
            identity=self.name,
            lease=lease,
        )


class _Reporter(LoggingReporter):
    """Log and metrics, and what this process does once all is listed."""

    def started(self, name: str) -> None:
        super().started(name)
        garbage.settle()

    def listed(self, kind: type[Object], objects: int) -> None:
        super().listed(kind, objects)
        garbage.settle()


@contextmanager
def _naming(where: str, remedy: str) -> Iterator[None]:
    """Describe an error of a server that cannot listen. Raises SettingsError."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise SettingsError(f"{where}: {cause}; {remedy}") from error
