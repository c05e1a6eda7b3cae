"""One address of a broker, checked from its name to the cluster behind it.

Each step has its own connection, so that a failure says something about that step only: the name, TCP to each IP
address, the TLS handshake, the broker's login mechanisms, the login, its API versions, its cluster. A failed step ends
the check. Nothing is changed at the broker, and no record is written.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn, TypeVar

from aioproducer.cluster import brokers_of
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.doctor import advice, certificates, versions
from aioproducer.doctor.findings import Finding, Status, Step, said_by
from aioproducer.error_codes import Code
from aioproducer.errors import (
    AuthenticationError,
    ConnectionLostError,
    KafkaError,
    ProtocolError,
    RequestTimedOutError,
    TlsError,
    broker_error,
)
from aioproducer.message_text import excerpt, host_port
from aioproducer.net.connection import Connection, abort
from aioproducer.net.opening import open_connection
from aioproducer.net.probe import login_wanted, wrong_tls
from aioproducer.net.route import addresses_of, open_stream
from aioproducer.net.sasl.authenticator import SaslAuthenticator
from aioproducer.net.tls import Tls, proved_name
from aioproducer.protocol.metadata import MetadataRequest, MetadataResponse
from aioproducer.protocol.produce import ProduceRequest
from aioproducer.protocol.sasl_handshake import SaslHandshakeRequest

SLOW_NAME_S = 1.0
"""A name service this slow delays every connection of a producer."""
CLOSER_LOOK_S = 2.0
"""How long an attempt with the other protocol may take."""

logger: logging.Logger = logging.getLogger("aioproducer.doctor")

T = TypeVar("T")


class Tools(NamedTuple):
    """Shared by all contacts of one diagnosis."""

    config: ProducerConfig
    loop: asyncio.AbstractEventLoop
    tls: Tls | None
    sasl: SaslAuthenticator | None
    timeout_s: float
    """Limit for each step."""

    @classmethod
    def make(cls, config: ProducerConfig, timeout_s: float) -> Tools:
        """The tools for the running loop."""
        loop = asyncio.get_running_loop()
        tls = Tls(config, loop) if config.uses_tls else None
        sasl = None
        if config.uses_sasl:
            sasl = SaslAuthenticator(config, loop=loop, rng=random.Random(), on_internal_error=_note)
        return cls(config, loop, tls, sasl, timeout_s)

    async def open(
        self, address: str, port: int, host: str, authenticate: Callable[[Connection], Awaitable[None]] | None
    ) -> Connection:
        """A connection to an IP address, made like a producer's."""
        async with asyncio.timeout(self.timeout_s):
            return await open_connection(
                address,
                port,
                host=host,
                node_id=-1,
                config=self.config,
                loop=self.loop,
                on_internal_error=_note,
                tls=self.tls,
                authenticate=authenticate,
            )


def _note(error: BaseException) -> None:
    """Only log internal errors: they end the connection too, and thus the step."""
    logger.error("a connection of the doctor failed", exc_info=error)


class _Failed(Exception):
    """A step has failed; its finding is already emitted."""


class _Seen(Exception):
    """A connection has served its purpose."""


class Contact:
    """The check of one address.

    Args:
        emit: called with each finding at once.
    """

    def __init__(self, tools: Tools, host: str, port: int, emit: Callable[[Finding], None]) -> None:
        self._tools = tools
        self._host = host
        self._port = port
        self._emit = emit
        self._offered: list[str] = []
        self.where: str = host_port(host, port)
        self.metadata: MetadataResponse | None = None
        """The broker's answer about its cluster; None if the check has not got that far."""
        self.connection: Connection | None = None
        """Open after a check without failures; closed by ``close``."""

    async def look(self) -> bool:
        """Run all steps; returns whether none failed."""
        try:
            addresses = await self._resolve()
            address = await self._connect(addresses)
            if self._tools.tls is not None:
                await self._shake_hands(address, self._tools.tls)
            if self._tools.sasl is not None:
                await self._ask_mechanisms(address)
            connection = await self._open(address)
            self._look_at_versions(connection)
            self.metadata = await self._ask_cluster(connection, address)
        except _Failed:
            await self.close()
            return False
        return True

    async def close(self) -> None:
        """Close the connection if there is one."""
        if self.connection is not None:
            connection, self.connection = self.connection, None
            connection.abort()
            await connection.wait_closed()

    # --- names and addresses ------------------------------------------------------------------------------------------

    async def _resolve(self) -> list[str]:
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._tools.timeout_s):
                found = await addresses_of(self._tools.config, self._tools.loop, self._host, self._port)
        except TimeoutError:
            self._fail(Step.DNS, "the name server does not answer", advice.of_name(self._host, does_not_exist=False))
        except OSError as error:
            unknown = isinstance(error, socket.gaierror) and error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
            told = f"the name {self._host} can't be resolved: {error.strerror or error}"
            self._fail(Step.DNS, told, advice.of_name(self._host, does_not_exist=unknown))
        took_s = time.perf_counter() - began
        facts = {"addresses": found, "took_ms": round(took_s * 1000, 1)}
        if found == [self._host]:
            return found
        if took_s > SLOW_NAME_S:
            self._warn(
                Step.DNS,
                f"resolving the name took {took_s:.1f} s: {', '.join(found)}",
                "check the name servers in /etc/resolv.conf: every new connection waits for them",
                facts,
            )
        else:
            self._ok(Step.DNS, ", ".join(found), facts)
        return found

    async def _connect(self, addresses: list[str]) -> str:
        """Try every address; returns the first that accepts connections."""
        tried = dict(zip(addresses, await asyncio.gather(*map(self._try, addresses)), strict=True))
        took = {address: result for address, result in tried.items() if isinstance(result, float)}
        if not tried:
            self._fail(Step.TCP, "the name has no address", advice.of_name(self._host, does_not_exist=True))
        for address, result in tried.items():
            if isinstance(result, OSError):
                self._tell_of_refusal(address, result, next(iter(took), None))
        if not took:
            raise _Failed
        shown = ", ".join(f"{address} in {took_ms:.1f} ms" for address, took_ms in took.items())
        self._ok(Step.TCP, f"connected to {shown}", {"took_ms": {key: round(ms, 2) for key, ms in took.items()}})
        return next(iter(took))

    def _tell_of_refusal(self, address: str, error: OSError, other: str | None) -> None:
        """Report why there is no connection to one address of the name.

        Args:
            other: an address that does accept connections.
        """
        through_proxy = self._tools.config.proxy_url is not None
        message, remedy = advice.of_connection(error, self._host, self._port, through_proxy=through_proxy)
        message = message if address == self._host else f"{address}: {message}"
        facts = {"address": address, "error": type(error).__name__}
        if other is not None:
            self._warn(Step.TCP, message, f"a producer falls back to {other}, which costs time; {remedy}", facts)
        else:
            self._emit(Finding(Step.TCP, self.where, Status.FAILED, message, remedy, facts))

    async def _try(self, address: str) -> float | OSError:
        """The ms a TCP connection takes, or why there is none."""
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._tools.timeout_s):
                _, writer = await open_stream(self._tools.config, address, self._port)
        except OSError as error:  # includes TimeoutError
            return error
        took_ms = (time.perf_counter() - began) * 1000
        writer.transport.abort()
        return took_ms

    # --- TLS ----------------------------------------------------------------------------------------------------------

    async def _shake_hands(self, address: str, tls: Tls) -> None:
        try:
            async with asyncio.timeout(self._tools.timeout_s):
                context = await tls.context()
                reader, writer = await open_stream(self._tools.config, address, self._port)
                transport = writer.transport
                try:
                    await tls.start(context, reader, writer, self._host)
                    agreed = writer.get_extra_info("ssl_object")
                    facts = certificates.verified_facts(agreed.getpeercert() or {})
                    facts |= {"version": agreed.version(), "cipher": agreed.cipher()[0]}
                finally:
                    abort(writer, transport)
        except TlsError as error:
            facts = {}
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                facts = await self._certificate(address)
            message, remedy = self._said_by(error)
            self._fail(Step.TLS, advice.joined(message, certificates.described(facts)), remedy, facts)
        except TimeoutError:
            await self._fail_with_other_protocol(address, Step.TLS)
            self._fail(Step.TLS, self._unanswered("the TLS handshake"), advice.of_silence(self._port))
        except OSError as error:
            await self._fail_with_other_protocol(address, Step.TLS)
            told = f"the connection was closed during the TLS handshake: {error.strerror or type(error).__name__}"
            self._fail(Step.TLS, told, advice.of_hang_up(self._port))
        self._tell_of_certificate(facts)

    def _tell_of_certificate(self, facts: dict[str, Any]) -> None:
        left = certificates.days_left(facts, time.time())
        about = f"{facts['version']}, {facts['cipher']}"
        if left is not None:
            about += f"; certificate for {', '.join(facts['names']) or facts['subject']} expires in {left:.0f} days"
        if left is not None and left < certificates.SOON_DAYS:
            self._warn(Step.TLS, about, "renew the broker's certificate before that", facts)
        elif not self._tools.config.ssl_endpoint_identification_algorithm:
            self._warn(
                Step.TLS,
                f"{about}; its host name was not verified",
                "leave ssl_endpoint_identification_algorithm at its default (https): without it, anyone with any "
                "trusted certificate can pose as the broker",
                facts,
            )
        else:
            self._ok(Step.TLS, about, facts)

    async def _certificate(self, address: str) -> dict[str, Any]:
        """The facts of the rejected certificate; does only the handshake."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with suppress(OSError):
            async with asyncio.timeout(min(CLOSER_LOOK_S, self._tools.timeout_s)):
                _, writer = await open_stream(self._tools.config, address, self._port)
                transport = writer.transport
                try:
                    await writer.start_tls(context, server_hostname=proved_name(self._host))
                    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
                finally:
                    abort(writer, transport)
                return certificates.unverified_facts(der or b"")
        return {}

    async def _fail_with_other_protocol(self, address: str, step: Step) -> None:
        """Fail if only one side uses TLS; return if that is not the cause, or can't be determined."""
        found = None
        with suppress(OSError, KafkaError):
            async with asyncio.timeout(min(CLOSER_LOOK_S, self._tools.timeout_s)):
                found = await wrong_tls(self._tools.config, address, self._port)
        if found is not None:
            self._fail(Step.TLS if step is Step.VERSIONS else step, *self._said_by(found, address))

    # --- login --------------------------------------------------------------------------------------------------------

    async def _ask_mechanisms(self, address: str) -> None:
        """Find out whether the broker requires a login, and by which mechanisms."""
        offered: list[str] = []
        codes: list[int] = []

        async def ask(connection: Connection) -> None:
            await connection.negotiate(first_version=0)
            # An invalid mechanism name: the broker answers with those it has, and closes the connection.
            response = await connection.request(SaslHandshakeRequest(mechanism=""), version=0)
            codes.append(response.error_code)
            offered.extend(excerpt(each, 50) for each in response.mechanisms)
            raise _Seen

        wanted = self._tools.config.sasl_mechanism
        try:
            connection = await self._tools.open(address, self._port, self._host, ask)
        except _Seen:
            pass
        except (KafkaError, OSError) as error:
            await self._fail_of_first_answer(error, address)
        else:  # ``ask`` always raises
            connection.abort()
        protocol = self._tools.config.security_protocol
        if codes == [Code.ILLEGAL_SASL_STATE]:
            plain = protocol.removeprefix("SASL_")
            self._fail(
                Step.LOGIN,
                f"the broker asks for no login at this port, but security_protocol={protocol} attempts one",
                f"set security_protocol={plain}, or use the broker's SASL port",
            )
        if offered and wanted not in offered:
            self._fail(
                Step.LOGIN,
                f"the broker offers {', '.join(offered)}, but not {wanted}",
                f"set sasl_mechanism to one of these, or enable {wanted} on the broker (sasl.enabled.mechanisms)",
                {"offered": offered},
            )
        self._offered = offered

    async def _open(self, address: str) -> Connection:
        """The logged-in connection for the remaining steps."""
        authenticate = None if self._tools.sasl is None else self._tools.sasl.authenticate
        try:
            connection = self.connection = await self._tools.open(address, self._port, self._host, authenticate)
        except TlsError as error:
            self._fail(Step.TLS, *self._said_by(error, address))
        except AuthenticationError as error:
            self._fail(Step.LOGIN, *self._said_by(error, address))
        except (KafkaError, OSError) as error:
            if authenticate is None:
                await self._fail_of_first_answer(error, address)
            self._fail(
                Step.LOGIN,
                self._unanswered("the login") if isinstance(error, TimeoutError) else self._said_by(error, address)[0],
                "check the broker's log: it says why the login was not completed",
            )
        if authenticate is not None:
            self._ok(
                Step.LOGIN,
                f"logged in with {self._tools.config.sasl_mechanism}; the broker offers {', '.join(self._offered)}",
                {"mechanism": self._tools.config.sasl_mechanism, "offered": self._offered},
            )
        return connection

    async def _fail_of_first_answer(self, error: KafkaError | OSError, address: str) -> None:
        """Report why the very first request got no answer."""
        if isinstance(error, TlsError):
            self._fail(Step.TLS, *self._said_by(error, address))
        if isinstance(error, (TimeoutError, RequestTimedOutError)):
            await self._fail_with_other_protocol(address, Step.VERSIONS)
            told = self._unanswered("the first request")
            self._fail(Step.VERSIONS, f"connected, but {told}", advice.of_silence(self._port))
        if isinstance(error.__cause__, ProtocolError) or isinstance(error, ProtocolError):
            told, remedy = said_by(error.__cause__ if isinstance(error.__cause__, ProtocolError) else error)
            message = f"the peer does not speak Kafka's protocol: {told}"
            self._fail(Step.VERSIONS, message, remedy or advice.of_stranger(self._port))
        if isinstance(error, (ConnectionLostError, OSError)):
            await self._fail_with_other_protocol(address, Step.VERSIONS)
            message = "the peer closed the connection instead of answering"
            self._fail(Step.VERSIONS, message, advice.of_hang_up(self._port))
        self._fail(Step.VERSIONS, *self._said_by(error, address))

    # --- the broker's answers -----------------------------------------------------------------------------------------

    def _look_at_versions(self, connection: Connection) -> None:
        told = connection.api_versions
        release, features = versions.kafka_version(told), versions.features_of(told)
        facts = {"kafka": release, "features": features}
        if versions.is_controller(told):
            self._fail(
                Step.VERSIONS,
                "this is a KRaft controller, which takes no records",
                "use a port of the brokers in bootstrap_servers (listeners in their server.properties)",
                facts,
            )
        theirs = connection.api_range(ProduceRequest.API_KEY)
        if theirs is None or theirs[1] < ProduceRequest.MIN_VERSION:
            message = f"it speaks like Kafka {release}; 0.11 or newer is required"
            self._fail(Step.VERSIONS, message, "use brokers of Kafka 0.11 or newer", facts)
        config = self._tools.config
        wanted = {
            "idempotence": (config.enable_idempotence, "set enable_idempotence=False"),
            "transactions": (config.transactional_id is not None, "leave transactional_id out"),
            "zstd": (config.compression_type == "zstd", "set compression_type to another codec"),
        }
        for name, (used, instead) in wanted.items():
            if used and not features[name]:
                message = f"it speaks like Kafka {release}, which has no {name}, but the configs ask for it"
                self._fail(Step.VERSIONS, message, f"{instead}, or use newer brokers", facts)
        has = [name for name, there in features.items() if there]
        lacks = [name for name, there in features.items() if not there]
        message = f"speaks like Kafka {release}: {', '.join(has)}" + (f"; without {', '.join(lacks)}" if lacks else "")
        self._ok(Step.VERSIONS, message, facts)

    async def _ask_cluster(self, connection: Connection, address: str) -> MetadataResponse:
        began = time.perf_counter()
        try:
            response = await self._in_time(connection.request(MetadataRequest(topics=[])))
            if response.error_code:
                raise broker_error(response.error_code, "the broker refused Metadata")
        except TimeoutError:
            self._fail(Step.CLUSTER, self._unanswered("Metadata"), advice.of_silence(self._port))
        except KafkaError as error:
            if isinstance(error, ConnectionLostError) and self._tools.sasl is None:
                await self._fail_with_login_wanted(address)
            self._fail(Step.CLUSTER, *self._said_by(error, address))
        if not response.brokers:
            self._fail(Step.CLUSTER, "the broker reports no brokers", "check its log: it may still be starting")
        took_ms = (time.perf_counter() - began) * 1000
        self._ok(
            Step.CLUSTER,
            f"cluster {excerpt(response.cluster_id or 'without id')}, {len(response.brokers)} "
            f"broker{'' if len(response.brokers) == 1 else 's'}, answered in {took_ms:.1f} ms",
            {
                "cluster_id": response.cluster_id,
                "brokers": {id_: host_port(each.host, each.port) for id_, each in brokers_of(response).items()},
                "took_ms": round(took_ms, 2),
            },
        )
        return response

    async def _fail_with_login_wanted(self, address: str) -> None:
        """Fail if a missing login is the cause; return if not."""
        found = None
        with suppress(OSError, KafkaError):
            connection = await self._tools.open(address, self._port, self._host, None)
            try:
                found = await self._in_time(login_wanted(connection))
            finally:
                connection.abort()
                await connection.wait_closed()
        if found is not None:
            self._fail(Step.LOGIN, *self._said_by(found, address))

    # --- findings -----------------------------------------------------------------------------------------------------

    async def _in_time(self, work: Coroutine[Any, Any, T]) -> T:
        async with asyncio.timeout(self._tools.timeout_s):
            return await work

    def _unanswered(self, what: str) -> str:
        return f"{what} was not answered within {self._tools.timeout_s:g} s"

    def _said_by(self, error: BaseException, address: str = "") -> tuple[str, str]:
        """Without the address, which is shown beside it."""
        message, remedy = said_by(error)
        for known in (f"node -1 ({self.where})", self.where, host_port(address, self._port)):
            message = message.removeprefix(f"{known}: ").replace(f"{known} ", "the broker ")
        return message, remedy

    def _ok(self, step: Step, message: str, facts: dict[str, Any]) -> None:
        self._emit(Finding(step, self.where, Status.OK, message, facts=facts))

    def _warn(self, step: Step, message: str, remedy: str, facts: dict[str, Any]) -> None:
        self._emit(Finding(step, self.where, Status.WARNING, message, remedy, facts))

    def _fail(self, step: Step, message: str, remedy: str, facts: dict[str, Any] | None = None) -> NoReturn:
        self._emit(Finding(step, self.where, Status.FAILED, message, remedy, facts or {}))
        raise _Failed
