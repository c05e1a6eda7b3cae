"""What holds for the HTTP of confluent-kafka's client: answers are bounded, and no URL in a log has a password.

The client reads an answer whole, however long it is, and httpx decompresses it on the way: a megabyte can become a
gigabyte. httpx also logs each request's URL at level INFO, with the login in it.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

MAX_ANSWER_BYTES = 10 * 1024 * 1024
"""Ten times what a registry keeps by default: it stores a schema as one record of Kafka."""


class AnswerRefusedError(Exception):
    """An answer that is not read to its end."""


def hold_to_limits(session: Any) -> None:
    """Have an AsyncClient of httpx, or httpx2, refuse large and compressed answers, and log URLs without logins."""
    base = next(cls for cls in type(session).__mro__ if cls.__name__ == "AsyncClient")
    package = sys.modules[base.__module__.partition(".")[0]]

    class Limited(package.AsyncByteStream):  # type: ignore[misc, name-defined]
        def __init__(self, body: Any) -> None:
            self._body = body

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = MAX_ANSWER_BYTES
            async for part in self._body:
                left -= len(part)
                if left < 0:
                    raise AnswerRefusedError(f"its answer is larger than {MAX_ANSWER_BYTES:,} bytes")
                yield part

        async def aclose(self) -> None:
            await self._body.aclose()

    async def limit(response: Any) -> None:
        coding = response.headers.get("content-encoding", "identity")
        if coding.strip().lower() != "identity":
            raise AnswerRefusedError("its answer is compressed, although that was not allowed")
        response.stream = Limited(response.stream)

    session.headers["Accept-Encoding"] = "identity"
    hooks = session.event_hooks
    session.event_hooks = {
        "request": [*hooks["request"], _without_login],
        "response": [*hooks["response"], limit],
    }


async def _without_login(request: Any) -> None:
    """Once the header has it."""
    request.url = request.url.copy_with(userinfo=b"")
