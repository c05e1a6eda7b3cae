"""A broker of the cluster model, as the others see it. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Broker:
    """One broker.

    Attributes:
        up: whether it is running. A stopped broker accepts no connection and leads nothing.
        fetches: whether it copies what leaders write.
        cut_off: whether it and the controller do not reach each other; see Partition.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    up: bool = True
    fetches: bool = True
    cut_off: bool = False

    @property
    def alive(self) -> bool:
        """Whether the controller takes it for running."""
        return self.up and not self.cut_off

    @property
    def copies(self) -> bool:
        """Whether its replicas follow their leaders."""
        return self.alive and self.fetches
