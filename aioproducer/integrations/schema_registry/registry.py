"""SchemaRegistry: confluent-kafka's asynchronous client, created on demand, with retries."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from confluent_kafka.schema_registry import AsyncSchemaRegistryClient, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.error import OAuthTokenError

from aioproducer.backoff import ExponentialBackoff
from aioproducer.bare_errors import raises_bare, strip_all
from aioproducer.errors import ConfigError
from aioproducer.integrations.schema_registry.http_limits import AnswerRefusedError, hold_to_limits
from aioproducer.integrations.schema_registry.lookups import Lookups
from aioproducer.message_text import excerpt

Answer = TypeVar("Answer")
Client: TypeAlias = Any
"""AsyncSchemaRegistryClient, or a compatible object."""

REQUEST_TIMEOUT_S = 10.0
"""Default for one HTTP request; the client's own default waits forever."""

_BACKOFF = ExponentialBackoff(100, 2_000)
_RETRIABLE_STATUSES = frozenset({408, 429, 500, 502, 503, 504})


class LookupFailedError(Exception):
    """Why a lookup failed; each record that needed it gets its own error based on this.

    Args:
        summary: one line.
        unavailable: the registry gave no answer in time, rather than a refusal.
    """

    def __init__(
        self, summary: str, *, status: int | None = None, error_code: int | None = None, unavailable: bool = False
    ) -> None:
        super().__init__(summary)
        self.summary: str = summary
        self.status: int | None = status
        self.error_code: int | None = error_code
        self.unavailable: bool = unavailable


class SchemaRegistry:
    """A schema registry, shared by any number of serializers and producers.

    It connects at the first lookup, with one client for each event loop it is used in. It owns these clients: they are
    closed when the last producer that used them closes, or by ``await close()``; a later lookup makes a new one.

    Args:
        registry: its URL, or several separated by commas; or a mapping with confluent-kafka's names (``url``,
            ``basic.auth.user.info``, ``ssl.ca.location``, ``bearer.auth.*``, ...); or an AsyncSchemaRegistryClient,
            which the caller has to close.
    Raises:
        ConfigError: it is none of these.
    """

    @raises_bare(ConfigError)
    def __init__(self, registry: str | Mapping[str, Any] | Client) -> None:
        self._given: Client | None = None
        self._config: dict[str, Any] = {}
        if isinstance(registry, str):
            self._config = {"url": registry}
        elif isinstance(registry, Mapping):
            self._config = dict(registry)
        elif isinstance(registry, SchemaRegistryClient):
            raise ConfigError(
                "an AsyncSchemaRegistryClient is needed: a SchemaRegistryClient would stop the event loop"
            )
        elif hasattr(registry, "register_schema_full_response"):
            self._given = registry
            self._config = dict(registry.config())
        else:
            raise ConfigError(
                f"a schema registry is its URL, a mapping of its client's configs, or an AsyncSchemaRegistryClient, "
                f"not a {type(registry).__name__}"
            )
        url = self._config.get("url")
        if not isinstance(url, str) or not url:
            raise ConfigError("the schema registry's url is missing")
        addresses = [each.strip() for each in url.split(",")]
        for number, each in enumerate(addresses, 1):
            if self._given is None and not _is_address(each):
                # Without an @ it may be half a login: a password with a comma.
                shown = repr(_without_login(each)) if "@" in each or "@" not in url else f"address {number}"
                raise ConfigError(
                    f"the schema registry's url {shown} is not an http or https address, such as http://localhost:8081"
                )
        self.url: str = ",".join(map(_without_login, addresses))
        self.lookups: Lookups[Any] = Lookups()
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()
        self._users: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.WeakSet[Any]] = (
            weakref.WeakKeyDictionary()
        )
        self._rng = random.Random()

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.url}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def client(self) -> Client:
        """The client of the running loop.

        Raises:
            LookupFailedError: the client rejects the configs.
        """
        if self._given is not None:
            return self._given
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            # Creating it reads a file of certificates (TLS). Retries are left to ask(), which knows the deadline.
            config = {"timeout": REQUEST_TIMEOUT_S, "max.retries": 0, **self._config}
            try:
                made = await loop.run_in_executor(None, _new_client, config)
            except (OSError, TypeError, ValueError) as error:
                raise LookupFailedError(f"its client can't be made: {type(error).__name__}: {error}") from error
            client = self._clients.setdefault(loop, made)
            if client is not made:
                await _close(made)
        return client

    async def ask(self, request: Callable[[Client], Awaitable[Answer]], limit_s: float) -> Answer:
        """Make a request, and repeat it while the registry can't be reached or reports a failure of its own.

        Args:
            limit_s: seconds for all attempts.
        Raises:
            LookupFailedError: refused, or no answer in time.
        """
        deadline = time.monotonic() + limit_s
        attempts = 0
        last = LookupFailedError("no answer yet")
        cause: Exception | None = None
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    return await request(await self.client())
            except LookupFailedError as refused:
                strip_all(refused)
                raise
            except TimeoutError as error:
                strip_all(error)
                raise self._unavailable(last, limit_s) from (cause or error)
            except Exception as error:
                failed = _refusal(error)
                # The client keeps its URLs, with the login, and headers with tokens in variables.
                strip_all(error)
                if not failed.unavailable:
                    raise failed from error
                last, cause = failed, error
            delay_s = _BACKOFF.delay_ms(attempts, self._rng) / 1000
            attempts += 1
            if time.monotonic() + delay_s >= deadline:
                raise self._unavailable(last, limit_s) from cause
            await asyncio.sleep(delay_s)

    def _unavailable(self, last: LookupFailedError, limit_s: float) -> LookupFailedError:
        return LookupFailedError(
            f"{last.summary}; given up after max_block_ms={round(limit_s * 1000)}",
            status=last.status,
            error_code=last.error_code,
            unavailable=True,
        )

    # --- who uses it --------------------------------------------------------------------------------------------------

    def use(self, user: object) -> None:
        """Keep the running loop's client open until this user is released."""
        self._users.setdefault(asyncio.get_running_loop(), weakref.WeakSet()).add(user)

    async def release(self, user: object) -> None:
        """Close the running loop's client if this was its last user."""
        users = self._users.get(asyncio.get_running_loop())
        if users is not None:
            users.discard(user)
        if not users:
            await self.close()

    async def close(self) -> None:
        """Cancel lookups in progress, and close the client of the running loop, unless it is the caller's."""
        await self.lookups.cancel()
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await _close(client)


def _new_client(config: dict[str, Any]) -> Client:
    """Blocking."""
    client = AsyncSchemaRegistryClient.new_client(config)
    session = getattr(getattr(client, "_rest_client", None), "session", None)
    for one in (session, _token_client(client)):
        if one is not None:
            hold_to_limits(one)
    return client


def _token_client(client: Client) -> Any:
    """The HTTP client that asks for tokens, which has no public name; None if there is none."""
    provider = getattr(getattr(client, "_rest_client", None), "bearer_field_provider", None)
    return getattr(provider, "client", None)


async def _close(client: Client) -> None:
    # Its aclose() leaves the connections of its OAuth client open.
    for one in (client, _token_client(client)):
        close = getattr(one, "aclose", None)
        if close is not None:
            with suppress(Exception):  # a connection already lost
                await close()


def _refusal(error: Exception) -> LookupFailedError:
    """Classify an error of the client: an answer, no answer, or neither."""
    if isinstance(error, SchemaRegistryError):
        # The registry's message about a schema, or a proxy's page. Never about a record: it has seen none.
        text = excerpt(str(error.error_message))
        code = error.error_code if type(error.error_code) is int else None  # whatever stands in the JSON
        return LookupFailedError(
            f"HTTP {error.http_status_code}{'' if code is None else f', error {code}'}: {text}",
            status=error.http_status_code,
            error_code=code,
            unavailable=error.http_status_code in _RETRIABLE_STATUSES,
        )
    if isinstance(error, AnswerRefusedError):
        return LookupFailedError(str(error))
    if isinstance(error, OAuthTokenError):
        return _no_token(error.__context__ or error)
    # httpx or httpx2, whichever the client uses: refused, reset, timed out, not resolved.
    if _is_a(error, "TransportError"):
        return LookupFailedError(f"{type(error).__name__}: {excerpt(str(error))}", unavailable=True)
    if isinstance(error, ConfigError):  # about a schema from the registry
        return LookupFailedError(str(error))
    if isinstance(error, (json.JSONDecodeError, UnicodeDecodeError)):
        return LookupFailedError("its answer is not JSON: is it a schema registry, or a proxy?")
    told = f"{type(error).__name__}: {excerpt(str(error))}"
    if isinstance(error, (AttributeError, KeyError, TypeError, RecursionError)):
        return LookupFailedError(f"the client can't make sense of its answer, or of a config: {told}")
    return LookupFailedError(told)


def _no_token(error: BaseException) -> LookupFailedError:
    """Classify why the token endpoint gave no token: it refused, or it may give one later."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    is_refused = _is_a(error, "OAuthError") or (status is not None and status not in _RETRIABLE_STATUSES)
    told = f"{type(error).__name__}: {excerpt(str(error))}" if status is None else f"HTTP {status}"
    if isinstance(error, AnswerRefusedError):
        is_refused, told = True, str(error)
    return LookupFailedError(f"no token from bearer.auth.issuer.endpoint.url: {told}", unavailable=not is_refused)


def _is_a(error: BaseException, name: str) -> bool:
    """Whether the error is of a class with this name, from whichever package."""
    return any(cls.__name__ == name for cls in type(error).__mro__)


def _is_address(url: str) -> bool:
    """Whether a client can use this URL; ``mock://`` needs no registry."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port, or half an IPv6 address
        return False
    return url.startswith("mock://") or (url.startswith(("http://", "https://")) and has_host)


def _without_login(url: str) -> str:
    """Only the address: no name, password or token."""
    if _is_address(url):
        parts = urlsplit(url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    scheme, separator, rest = url.rpartition("://")
    return scheme + separator + re.split(r"[?#]", rest.rpartition("@")[2], maxsplit=1)[0]
