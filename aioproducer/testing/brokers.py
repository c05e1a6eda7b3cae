"""The broker processes of one running cluster."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from aioproducer.errors import KafkaError
from aioproducer.protocol.metadata import MetadataRequest
from aioproducer.testing import broker_log
from aioproducer.testing.admin_connection import AdminConnection
from aioproducer.testing.command import Runtime, environment
from aioproducer.testing.errors import BrokerStartError, ClusterError
from aioproducer.testing.processes import Processes
from aioproducer.testing.properties import Address, Node
from aioproducer.testing.waiting import POLL_S

MAIN_CLASS = "kafka.Kafka"
ANSWER_S = 2.0
KILL_S = 30.0
TOOL_S = 120.0


class PortTakenError(BrokerStartError):
    """Another process took a port between our check and the broker's start."""


class Brokers:
    """Processes, directories and states of the brokers, by node id. Not thread-safe; its owner is.

    Args:
        directory: has one directory per broker, ``broker-1`` and so on, with ``server.properties`` and ``broker.log``.
        remove: whether the directory is removed at the end.
        listener: the one clients and this class connect to.
    """

    def __init__(
        self, runtime: Runtime, directory: Path, *, remove: bool, jvm_options: Sequence[str], listener: str
    ) -> None:
        self.runtime = runtime
        self.directory = directory
        self.nodes: dict[int, Node] = {}
        self.cluster_id = ""
        self._processes = Processes(directory if remove else None)
        self._jvm_options = jvm_options
        self._listener = listener
        self._started: set[int] = set()
        self._paused: set[int] = set()
        self._tools = 0

    def close(self) -> None:
        """Kill everything."""
        self._processes.close()

    # --- what there is

    def node(self, broker: int) -> Node:
        """The node of this number."""
        if broker not in self.nodes:
            raise ClusterError(f"there is no broker {broker}, only {sorted(self.nodes)}")
        return self.nodes[broker]

    def address_of(self, broker: int) -> Address:
        """Where clients reach a broker."""
        return self.node(broker).address(self._listener)

    def directory_of(self, broker: int) -> Path:
        """The directory of a broker."""
        return self.directory / _name(broker)

    def log_path(self, broker: int) -> Path:
        """A broker's log file."""
        return self.directory_of(broker) / "broker.log"

    @property
    def running(self) -> tuple[int, ...]:
        """The brokers whose process runs, paused or not."""
        return tuple(one for one in sorted(self._started) if self._processes.exit_code(_name(one)) is None)

    @property
    def live(self) -> dict[int, Address]:
        """The addresses of running brokers that are not paused."""
        return {one: self.address_of(one) for one in self.running if one not in self._paused}

    def describe_ended(self) -> str:
        """Why brokers ended unasked, by their logs; empty if none did."""
        return "".join(
            f"\nbroker {one} ended with exit code {code}.{broker_log.describe(broker_log.read_log(self.log_path(one)))}"
            for one in sorted(self._started)
            if (code := self._processes.exit_code(_name(one))) is not None
        )

    # --- starting

    def start(self, brokers: Sequence[int], timeout_s: float) -> None:
        """Start brokers on their directories and wait until every running one sees all others.

        Raises:
            PortTakenError: one of their ports is in use.
            BrokerStartError: one ended or is not ready in time. None of these brokers is then left running.
        """
        log_begins = {broker: _size(self.log_path(broker)) for broker in brokers}
        try:
            for broker in brokers:
                self._start_process(broker)
            self._wait_until_ready(log_begins, timeout_s)
        except BaseException:
            for broker in set(brokers) & set(self.running):
                self.kill(broker)
            raise

    def _start_process(self, broker: int) -> None:
        directory = self.directory_of(broker)
        command = self.runtime.command(
            MAIN_CLASS, [str(directory / "server.properties")], options=self._jvm_options, temporary=directory / "tmp"
        )
        environ = environment(os.environ)
        self._processes.start(_name(broker), command, env=environ, cwd=directory, log=self.log_path(broker))
        self._started.add(broker)
        self._paused.discard(broker)

    def _wait_until_ready(self, log_begins: Mapping[int, int], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while wrong := self._not_started(log_begins) or self._not_ready():
            if time.monotonic() > deadline:
                broker, what = wrong
                raise self._start_error(broker, log_begins.get(broker, 0), f"{what} after {timeout_s:g} s")
            time.sleep(POLL_S)

    def _not_started(self, log_begins: Mapping[int, int]) -> tuple[int, str] | None:
        """A broker that has not reported being up: one listener may answer before another finds its port taken.

        Raises:
            BrokerStartError: one has ended, or is about to.
        """
        waited_for = None
        for broker, log_begin in log_begins.items():
            code = self._processes.exit_code(_name(broker))
            if code is not None:
                raise self._start_error(broker, log_begin, f"ended with exit code {code}")
            log = broker_log.read_log(self.log_path(broker), log_begin)
            # A broker that can't bind its port takes 10 s to exit.
            if broker_log.port_was_taken(log):
                raise self._start_error(broker, log_begin, "found its port taken")
            if waited_for is None and not broker_log.has_started(log):
                waited_for = broker, "is not up"
        return waited_for

    def _not_ready(self) -> tuple[int, str] | None:
        """A broker that does not see all others, and what it lacks."""
        live = self.live
        for broker in self._started - live.keys() - self._paused:
            return broker, "has ended"
        for broker, address in live.items():
            try:
                with AdminConnection(address, ANSWER_S) as connection:
                    seen = connection.ask(MetadataRequest(topics=[]))
            except (OSError, KafkaError):
                return broker, "does not answer"
            if seen.cluster_id != self.cluster_id:
                # Another cluster took the port first. Our broker fails to bind it, and then ends.
                return broker, f"is not at {address}, a broker of another cluster is"
            missing = live.keys() - {one.node_id for one in seen.brokers}
            if missing:
                return broker, f"does not see the brokers {sorted(missing)}"
            if seen.controller_id < 0:
                return broker, "knows no controller"
        return None

    def _start_error(self, broker: int, log_begin: int, what: str) -> BrokerStartError:
        log = broker_log.read_log(self.log_path(broker), log_begin)
        kind = PortTakenError if broker_log.port_was_taken(log) else BrokerStartError
        java, version = self.runtime.java, self.runtime.jars.version
        return kind(
            f"Kafka {version} did not start on Java {java.feature} ({java.path}): broker {broker} {what}."
            f"{broker_log.describe(log)}"
        )

    # --- stopping and pausing

    def kill(self, broker: int) -> None:
        """End a broker with SIGKILL."""
        self._signal(broker, signal.SIGKILL)
        if not self._wait_for_end(broker, KILL_S):
            raise ClusterError(f"broker {broker} survived SIGKILL for {KILL_S:g} s")

    def shut_down(self, broker: int, timeout_s: float) -> bool:
        """End a broker with SIGTERM; False if it still runs after ``timeout_s``."""
        self.resume(broker)
        self._signal(broker, signal.SIGTERM)
        return self._wait_for_end(broker, timeout_s)

    def pause(self, broker: int) -> None:
        """Stop a broker with SIGSTOP."""
        self._signal(broker, signal.SIGSTOP)
        self._paused.add(broker)

    def resume(self, broker: int) -> None:
        """Resume a paused broker."""
        if broker in self._paused:
            self._signal(broker, signal.SIGCONT)
            self._paused.discard(broker)

    def _signal(self, broker: int, number: int) -> None:
        self.node(broker)
        if not self._processes.signal(_name(broker), number):
            raise ClusterError(f"broker {broker} is not running")

    def _wait_for_end(self, broker: int, timeout_s: float) -> bool:
        if self._processes.wait(_name(broker), timeout_s) is None:
            return False
        self._started.discard(broker)
        self._paused.discard(broker)
        return True

    # --- tools

    def run_tool(self, name: str, arguments: Sequence[str]) -> tuple[int | None, str]:
        """Run one of Kafka's tools by its class name; returns exit code (None: not done within TOOL_S) and output."""
        self._tools += 1
        work = self.directory / f"tool-{self._tools}"
        work.mkdir()
        try:
            return self._run_tool(name, arguments, work)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _run_tool(self, name: str, arguments: Sequence[str], work: Path) -> tuple[int | None, str]:
        main_class = self.runtime.jars.tool(name)
        command = self.runtime.command(main_class, arguments, options=["-Xmx256m"], temporary=work)
        output = work / "output"
        self._processes.start(work.name, command, env=environment(os.environ), cwd=work, log=output)
        code = self._processes.wait(work.name, TOOL_S)
        if code is None:
            self._processes.signal(work.name, signal.SIGKILL)
        return code, output.read_text(errors="replace")


def _name(broker: int) -> str:
    return f"broker-{broker}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
