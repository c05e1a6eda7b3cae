"""The interface of a SASL mechanism to the rest of the client."""

from __future__ import annotations

from typing import Protocol


class Exchange(Protocol):
    """One login in progress."""

    ends_unanswered: bool
    """Whether the latest token completes the login, and brokers before 1.0 do not answer it."""

    async def respond(self, challenge: bytes | None) -> bytes | None:
        """The client's next token.

        Args:
            challenge: the broker's last one; None at the beginning.
        Returns:
            None once the login is complete on this side.
        Raises:
            AuthenticationError: the broker's token is wrong, or does not prove what it has to prove.
        """
        ...


class Mechanism(Protocol):
    """How to log in; one object for all connections of a producer."""

    name: str
    """The name by which the broker knows it."""
    who: str
    """Who logs in, for messages; never a secret."""
    remedy: str
    """What to check if the broker refuses."""

    async def begin(self, host: str) -> Exchange:
        """Get what a login needs (a token, a ticket), which may take its time.

        Args:
            host: the broker's name.
        Raises:
            AuthenticationError: there is nothing to log in with.
            ConnectionLostError: it is not available at the moment.
        """
        ...

    def refused(self, exchange: Exchange) -> None:
        """The broker did not accept what this login used: get it anew for the next one."""
        ...
