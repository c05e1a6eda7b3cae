"""An OpenID provider in this process: a token endpoint, and the keys by which a broker checks its tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from tests.web_tokens import verified

AUDIENCE = "kafka"
CLIENT_ID, CLIENT_SECRET = "alice", "oidc-secret"
_KEY_ID = "key-1"


class SigningKey:
    """The provider's key; the broker knows its public half."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def write_public(self, path: Path) -> None:
        """Write the public key as a JSON web key set."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_encode(value.to_bytes((value.bit_length() + 7) // 8)) for value in (numbers.n, numbers.e))
        key = {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": _KEY_ID, "n": n, "e": e}
        path.write_text(json.dumps({"keys": [key]}))

    def token(self, subject: str, *, lifetime_s: float, audience: str = AUDIENCE) -> str:
        """A signed JSON web token."""
        now_s = int(time.time())
        header = {"alg": "RS256", "kid": _KEY_ID, "typ": "JWT"}
        claims = {"sub": subject, "aud": audience, "iat": now_s, "exp": now_s + lifetime_s, "scope": "produce"}
        signed = ".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
        return f"{signed}.{_encode(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


class TokenServer:
    """POST /token for client credentials and assertions.

    Args:
        failures: how many requests to answer with 503 first.
        client_key: the key that assertions have to be signed with; without it the client has a secret.
    """

    def __init__(
        self,
        key: SigningKey,
        *,
        tls: ssl.SSLContext | None = None,
        lifetime_s: float = 300,
        failures: int = 0,
        client_key: rsa.RSAPublicKey | ec.EllipticCurvePublicKey | None = None,
    ) -> None:
        self._key = key
        self._tls = tls
        self.lifetime_s = lifetime_s
        self.failures = failures
        self._client_key = client_key
        self.requests: list[dict[str, Any]] = []
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        scheme = "https" if self._tls else "http"
        return f"{scheme}://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/token"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            body = (await reader.readexactly(int(headers.get("content-length", 0)))).decode()
            status, answer = self._answer(headers.get("authorization", ""), body)
            data = json.dumps(answer).encode()
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + data
            )
            await writer.drain()
        finally:
            writer.close()

    def _answer(self, authorization: str, body: str) -> tuple[int, dict[str, Any]]:
        form = {name: values[0] for name, values in parse_qs(body).items()}
        self.requests.append(form)
        if self.failures:
            self.failures -= 1
            return 503, {}
        if self._client_key is not None:
            if authorization or not verified(form.get("client_assertion", form.get("assertion", "")), self._client_key):
                return 401, {"error": "invalid_client"}
            return 200, {"id_token": self._key.token(CLIENT_ID, lifetime_s=self.lifetime_s)}
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {expected}" or form.get("grant_type") != "client_credentials":
            return 401, {"error": "invalid_client", "error_description": f"not {authorization}"}
        token = self._key.token(CLIENT_ID, lifetime_s=self.lifetime_s)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
