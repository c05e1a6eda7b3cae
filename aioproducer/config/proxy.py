"""The config ``proxy_url``: the proxy, and the other configs it needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from aioproducer.config.values import PASSWORD, ConfigType
from aioproducer.errors import ConfigError
from aioproducer.extras import check_package
from aioproducer.message_text import host_port

RESOLVES = {"socks5": False, "socks5h": True, "http": True}
"""Whether the proxy resolves broker names, by the scheme of its URL, as in curl."""

_CREDENTIAL = re.compile(r"[ -~]{1,255}")
"""What both protocols can carry."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that connections to brokers go through."""

    scheme: str
    host: str
    port: int
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    """None if and only if there is no user."""

    @classmethod
    def parse(cls, url: str) -> Proxy:
        """The proxy of a URL.

        Raises:
            ValueError: the URL is not a proxy's.
        """
        parts = urlsplit(url)
        if parts.scheme not in RESOLVES or not parts.hostname or not parts.port:
            raise ValueError
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError
        parts.hostname.encode("idna")  # an impossible name raises here, not at each connection
        user, password = [None if text is None else unquote(text) for text in (parts.username, parts.password)]
        if (user is None) != (password is None):
            raise ValueError  # neither protocol can log in with a user alone
        if any(text is not None and not _CREDENTIAL.fullmatch(text) for text in (user, password)):
            raise ValueError
        if parts.scheme == "http" and ":" in (user or ""):
            raise ValueError  # where the password begins there
        return cls(parts.scheme, parts.hostname, parts.port, user, password)

    @property
    def resolves(self) -> bool:
        """Whether the proxy resolves broker names."""
        return RESOLVES[self.scheme]

    def __str__(self) -> str:
        """Without user and password."""
        return f"{self.scheme}://{host_port(self.host, self.port)}"


def _proxy(value: object) -> Proxy:
    return Proxy.parse(PASSWORD.parse(value))


PROXY = ConfigType(
    "secret string, socks5://, socks5h:// or http:// and [user:password@]host:port, in ASCII",
    "Proxy",
    "str",
    _proxy,
    secret=True,
)
"""A URL, which may contain a password."""


def check_proxy(values: Mapping[str, Any]) -> None:
    """Check what ``proxy_url`` needs.

    Raises:
        ConfigError: its extra is not installed, or another config contradicts it.
    """
    proxy: Proxy | None = values["proxy_url"]
    if proxy is None:
        return
    if proxy.scheme != "http":
        check_package(f"proxy_url={proxy}", "python-socks", "proxy")
    lookup = values["client_dns_lookup"]
    if proxy.resolves and lookup != "use_all_dns_ips":
        raise ConfigError(
            f"client_dns_lookup={lookup} contradicts proxy_url={proxy}, which leaves names to the proxy; use socks5://"
        )
