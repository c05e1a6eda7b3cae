"""TokenEndpoint: tokens from an OpenID provider, in exchange for proof of who this client is.

    the proof                    grant_type          sent with it                            source
    ---------------------------  ------------------  --------------------------------------  ----------------------
    client id and secret         client_credentials  both in the header Authorization        RFC 6749 4.4, KIP-768
    an assertion in their place  client_credentials  client_assertion, its type, client_id   RFC 7523 2.2, KIP-1258
    an assertion as the grant    ...jwt-bearer       assertion                               RFC 7523 2.1, KIP-1139

An assertion is read from a file, or signed here; each request uses the file's current one, or a new one.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import ssl
import time
from contextlib import aclosing
from urllib.parse import quote_plus, urlsplit
from urllib.request import getproxies

import httpx

from aioproducer.backoff import ExponentialBackoff
from aioproducer.config.login import ENDPOINT_TLS
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError, TlsError
from aioproducer.message_text import excerpt
from aioproducer.net.resolver import resolve
from aioproducer.net.sasl.jwt_file import read_jwt
from aioproducer.net.tls import load_trust_store, make_context, new_context
from aioproducer.net.workers import SharedCall
from aioproducer.oauth_token import OAuthToken

MAX_ANSWER_BYTES = 1024 * 1024
MAX_RETRY_MS = 5_000
"""Limit of the retries: an attempt to connect has 10 s, and failing within them lets the error say why."""
DEFAULT_TIMEOUT_MS = 5_000
FINAL_STATUSES = frozenset((*range(300, 408), *range(409, 416), 501, 505))
"""Statuses after which Java's HttpJwtRetriever does not retry; here also redirects, which are not followed."""
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class TokenEndpoint:
    """Asks the token endpoint. Transient errors are retried with back-off, for some seconds.

    Attributes:
        who: the identity presented to the endpoint and the broker, for messages.
    """

    def __init__(self, config: ProducerConfig, loop: asyncio.AbstractEventLoop, rng: random.Random) -> None:
        self._config = config
        self._loop = loop
        self._rng = rng
        self._endpoint_tls = config.endpoint_tls()
        self._trust = SharedCall(loop, self._tls)
        self._assertions = SharedCall(loop, self._assertion)
        self._backoff = ExponentialBackoff(
            config.sasl_login_retry_backoff_ms, max(config.sasl_login_retry_backoff_max_ms, 1)
        )
        client_id, issuer = (
            config.sasl_oauthbearer_client_credentials_client_id,
            config.sasl_oauthbearer_assertion_claim_iss,
        )
        self._has_secret = config.sasl_oauthbearer_client_credentials_client_secret is not None
        if client_id and config.sasl_oauthbearer_jwt_retriever_class != "JwtBearerJwtRetriever":
            self.who = f"client {client_id!r}"
        else:
            self.who = "the assertion" + (f" of {issuer!r}" if issuer else "")
        url = urlsplit(config.sasl_oauthbearer_token_endpoint_url or "")
        self._shown = f"{url.scheme}://{url.netloc}{url.path}"

    async def fetch(self) -> OAuthToken:
        """A new token.

        Raises:
            AuthenticationError: the endpoint refuses this client, its answer has no token, or there is no assertion.
            ConnectionLostError: it can't be reached, or fails.
        """
        until_ms = self._now_ms() + min(self._config.sasl_login_retry_backoff_max_ms, MAX_RETRY_MS)
        attempts = 0
        while True:
            try:
                return await self._ask()
            except ConnectionLostError:
                wait_ms = self._backoff.delay_ms(attempts, self._rng)
                if not self._config.sasl_login_retry_backoff_ms or self._now_ms() + wait_ms > until_ms:
                    raise
            await asyncio.sleep(wait_ms / 1000)
            attempts += 1

    async def _ask(self) -> OAuthToken:
        verify = await self._trust.result()
        read_s = (self._config.sasl_login_read_timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        connect_s = (self._config.sasl_login_connect_timeout_ms or DEFAULT_TIMEOUT_MS) / 1000
        timeout = httpx.Timeout(read_s, connect=connect_s)
        form = await self._form()
        # Decompressed, an answer below the limit could have any size; Java's client accepts no compression either.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "Cache-Control": "no-cache"}
        url = self._config.sasl_oauthbearer_token_endpoint_url or ""
        limit_s = connect_s + read_s  # httpx's limits are per step, and restart with each byte
        try:
            async with asyncio.timeout(limit_s):
                await self._look_up(httpx.URL(url))
                async with (
                    self._client(verify, timeout) as client,
                    aclosing(await _post(client, url, form, headers)) as answer,
                ):
                    return self._token(answer.status_code, await _body(answer))
        except TimeoutError:
            raise ConnectionLostError(
                f"the token endpoint {self._shown} has not answered within {limit_s * 1000:.0f} ms "
                "(sasl_login_read_timeout_ms, and sasl_login_connect_timeout_ms)"
            ) from None
        except httpx.TimeoutException as error:
            config, step_s = ("connect", connect_s) if isinstance(error, httpx.ConnectTimeout) else ("read", read_s)
            raise ConnectionLostError(
                f"the token endpoint {self._shown} can't be asked: {type(error).__name__} after {step_s * 1000:.0f} ms "
                f"(sasl_login_{config}_timeout_ms)"
            ) from None
        except (httpx.HTTPError, UnicodeError) as error:  # UnicodeError: an impossible name, perhaps in a redirect
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise ConnectionLostError(f"the token endpoint {self._shown} can't be asked: {excerpt(what)}") from None
        except httpx.InvalidURL:
            raise AuthenticationError(f"sasl_oauthbearer_token_endpoint_url is not a URL: {self._shown}") from None

    async def _look_up(self, url: httpx.URL) -> None:
        """Resolve the endpoint's name, if no proxy does, before httpx does it again in one of the loop's threads.

        While no name server answers, each attempt would keep one of these for longer than the attempt lasts.
        """
        proxies = getproxies()
        if proxies.get(url.scheme) or proxies.get("all"):
            return
        try:
            await resolve(self._loop, url.raw_host.decode(), url.port or 0)
        except OSError as error:
            raise ConnectionLostError(f"the token endpoint {self._shown} can't be asked: {error}") from None

    def _client(self, verify: ssl.SSLContext, timeout: httpx.Timeout) -> httpx.AsyncClient:
        try:
            return httpx.AsyncClient(verify=verify, timeout=timeout, auth=self._credentials())
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            # Only an ImportError shows no part of the proxy's URL, which may contain a password.
            why = str(error) if isinstance(error, ImportError) else "it is not a proxy's URL"
            raise AuthenticationError(
                f"the token endpoint {self._shown} can't be asked through the proxy that the environment names "
                f"(HTTPS_PROXY, ALL_PROXY): {why}"
            ) from None

    async def _form(self) -> _Form:
        """The posted form; client id and secret go in the header."""
        config = self._config
        form = {"grant_type": "client_credentials"}
        if not self._has_secret:
            assertion = await self._assertions.result()
            if config.sasl_oauthbearer_jwt_retriever_class == "JwtBearerJwtRetriever":
                form = {"grant_type": JWT_BEARER, "assertion": assertion}
            else:
                form |= {"client_assertion_type": ASSERTION_TYPE, "client_assertion": assertion}
                if config.sasl_oauthbearer_client_credentials_client_id:
                    form["client_id"] = config.sasl_oauthbearer_client_credentials_client_id
        if config.sasl_oauthbearer_scope:
            form["scope"] = config.sasl_oauthbearer_scope
        return _Form(form)

    def _assertion(self) -> str:
        """Blocking."""
        path = self._config.sasl_oauthbearer_assertion_file
        if path:
            return read_jwt(path, "sasl_oauthbearer_assertion_file")
        from aioproducer.net.sasl.assertion import signed_assertion  # its packages may be missing

        return signed_assertion(self._config)

    def _credentials(self) -> httpx.BasicAuth | None:
        if not self._has_secret:
            return None
        client_id = self._config.sasl_oauthbearer_client_credentials_client_id or ""
        secret = self._config.sasl_oauthbearer_client_credentials_client_secret or ""
        if self._config.sasl_oauthbearer_header_urlencode:
            client_id, secret = quote_plus(client_id), quote_plus(secret)
        return httpx.BasicAuth(client_id, secret)

    def _tls(self) -> ssl.SSLContext:
        """TLS as the login module says; else the system's trust plus the brokers' trust store. Blocking."""
        if self._endpoint_tls is not None:
            try:
                return make_context(self._endpoint_tls)
            except TlsError as error:
                raise TlsError(f"{ENDPOINT_TLS}: {error}") from error
        context = new_context()
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        load_trust_store(context, self._config)
        return context

    def _token(self, status: int, body: bytes) -> OAuthToken:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            answer = None
        fields = answer if isinstance(answer, dict) else {}
        if status not in (200, 201):
            raise self._refusal(status, fields)
        values = [fields.get(name) for name in ("access_token", "id_token")]
        value = next((value.strip() for value in values if isinstance(value, str) and value.strip()), None)
        if value is None:
            raise AuthenticationError(f"the token endpoint {self._shown} answered without an access_token")
        expires_in = fields.get("expires_in")
        if isinstance(expires_in, (int, float)) and 0 < expires_in < 1e9:
            return OAuthToken(value, int((time.time() + expires_in) * 1000))
        return OAuthToken(value)

    def _refusal(self, status: int, fields: dict[str, object]) -> KafkaError:
        error = fields.get("error")
        code = f" ({error})" if isinstance(error, str) and re.fullmatch(r"[a-z_]{1,60}", error) else ""
        message = f"the token endpoint {self._shown} answered HTTP {status}{code}"
        if status not in FINAL_STATUSES:
            return ConnectionLostError(message)
        proof = "client_credentials_client_id and _client_secret" if self._has_secret else "assertion_*"
        return AuthenticationError(
            f"{message} for {self.who}: look at sasl_oauthbearer_token_endpoint_url, sasl_oauthbearer_{proof}, "
            "and sasl_oauthbearer_scope"
        )

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


class _Form:
    """Fields that may hold a secret, and that the text of this object does not show.

    An error keeps the variables of the frames that it passes, and tools that report errors send their text along.
    """

    def __init__(self, fields: dict[str, str]) -> None:
        self.fields = fields


class _Logged(httpx.URL):
    """A URL that httpx logs without query and fragment, which may contain a secret."""

    def __str__(self) -> str:
        return re.split("[?#]", super().__str__(), maxsplit=1)[0]


async def _post(client: httpx.AsyncClient, url: str, form: _Form, headers: dict[str, str]) -> httpx.Response:
    request = client.build_request("POST", url, data=form.fields, headers=headers)
    request.url = _Logged(url)
    return await client.send(request, stream=True)


async def _body(answer: httpx.Response) -> bytes:
    body = bytearray()
    async for part in answer.aiter_raw():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            raise AuthenticationError("the token endpoint's answer is larger than a megabyte")
    return bytes(body)
