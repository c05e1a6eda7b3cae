"""Throw-away certificates for the listeners of a test cluster, and for clients that must present one."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

from aioproducer.testing.errors import ClusterError


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate with its private key, both as PEM text."""

    chain: str
    key: str = field(repr=False)
    """In PKCS #8 format, the only one that Kafka reads."""

    @property
    def pem(self) -> str:
        """Key and chain as one text, as Kafka's PEM key stores are."""
        return self.key + self.chain

    def encrypted_key(self, password: str) -> str:
        """The private key, encrypted."""
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption

        return _pkcs8(self.key.encode(), BestAvailableEncryption(password.encode()))


class CertificateAuthority:
    """A certificate authority that lives as long as this object and signs anything.

    Raises:
        ClusterError: the package trustme, of the extra ``testing``, is missing.
    """

    def __init__(self) -> None:
        try:
            import trustme
        except ImportError as error:
            raise ClusterError("TLS listeners need the package trustme: pip install 'aioproducer[testing]'") from error
        self._authority = trustme.CA()

    @property
    def pem(self) -> str:
        """Its own certificate, for trust stores."""
        return self._authority.cert_pem.bytes().decode()

    def issue(
        self,
        *names: str,
        common_name: str | None = None,
        not_before: datetime.datetime | None = None,
        not_after: datetime.datetime | None = None,
    ) -> Certificate:
        """A certificate for host names or IP addresses.

        Args:
            common_name: what a broker takes as a client's name.
            not_before, not_after: the period in which it is valid.
        """
        from cryptography.hazmat.primitives.serialization import NoEncryption

        leaf = self._authority.issue_cert(*names, common_name=common_name, not_before=not_before, not_after=not_after)
        chain = "".join(blob.bytes().decode() for blob in leaf.cert_chain_pems)
        return Certificate(chain, _pkcs8(leaf.private_key_pem.bytes(), NoEncryption()))


def _pkcs8(key: bytes, encryption: Any) -> str:
    from cryptography.hazmat.primitives import serialization

    loaded = serialization.load_pem_private_key(key, None)
    pem = loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return pem.decode()
