"""User name and password for a login: fixed, or the program's to provide each time."""

from __future__ import annotations

from typing import Any

from aioproducer.bare_errors import raises_bare
from aioproducer.config.producer_config import ProducerConfig
from aioproducer.errors import AuthenticationError
from aioproducer.net.sasl.provider import provided

PROVIDER = "sasl_credentials_provider"


class Credentials:
    """Where PLAIN and SCRAM get user name and password from."""

    def __init__(self, config: ProducerConfig) -> None:
        self._config = config
        if config.sasl_credentials_provider is None:
            self.who = f"user {config.sasl_username!r}"
            self.source = "sasl_username and sasl_password"
        else:
            self.who = f"the user of {PROVIDER}"
            self.source = f"what {PROVIDER} returns"

    async def get(self) -> tuple[str, str]:
        """User name and password for one login.

        Raises:
            AuthenticationError: the provider returned something else.
            ConnectionLostError: it raised something.
        """
        provider = self._config.sasl_credentials_provider
        if provider is None:
            return self._config.sasl_username or "", self._config.sasl_password or ""
        return _checked(await provided(PROVIDER, provider))


@raises_bare(AuthenticationError)
def _checked(answer: Any) -> tuple[str, str]:
    """No part of it is shown, as it may hold the password in the wrong place."""
    if not isinstance(answer, (tuple, list)) or not all(isinstance(part, str) for part in answer) or len(answer) != 2:
        raise AuthenticationError(f"{PROVIDER} has to return a user name and a password, two str")
    user, password = map(str.__str__, answer)  # a str that hides itself would be formatted as what it shows
    if not user or not password:
        raise AuthenticationError(f"{PROVIDER} returned an empty {'password' if user else 'user name'}")
    try:
        (user + password).encode()
    except UnicodeEncodeError:  # which shows them
        raise AuthenticationError(f"{PROVIDER} returned characters that have no UTF-8") from None
    return user, password
