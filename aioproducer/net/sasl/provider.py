"""Calls the program's own functions that provide tokens and credentials."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from aioproducer.errors import AuthenticationError, ConnectionLostError, KafkaError
from aioproducer.net.cancellation import is_own_cancellation


async def provided(name: str, provider: Callable[[], Awaitable[Any]]) -> Any:
    """What a provider returns.

    Args:
        name: of its config, for messages.
    Raises:
        AuthenticationError: it is no async function.
        ConnectionLostError: it raised something; that counts as temporary, unless it is a KafkaError.
    """
    try:
        awaitable = provider()
        if not inspect.isawaitable(awaitable):
            raise AuthenticationError(
                f"{name} returned a {type(awaitable).__name__}, not an awaitable; it has to be an async function"
            )
        return await awaitable
    except KafkaError:
        raise
    except (Exception, asyncio.CancelledError) as error:
        if is_own_cancellation(error):
            raise  # this login was cancelled, not just something inside the provider
        # The text of the provider's error may contain secrets; it is still available as the cause.
        raise ConnectionLostError(f"{name} raised {type(error).__name__}") from error
