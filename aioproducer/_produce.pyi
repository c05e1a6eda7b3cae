"""Produce requests and responses as bytes; the one API whose path is not made from the schema."""

from typing import final

from aioproducer._producer_batch import ProducerBatch

def encode_produce_request(
    version: int,
    correlation_id: int,
    client_id: bytes | None,
    transactional_id: bytes | None,
    acks: int,
    timeout_ms: int,
    batches: list[ProducerBatch],
) -> list[bytes | memoryview]:
    """A whole Produce frame, with its size, as a list of buffers: what surrounds the records, and the records in place.

    Records of up to 4 KiB are copied, and so share a buffer with what surrounds them.

    Args:
        version: 3 to 13. From 13 on topics go by ``topic_id``, before that by name.
        client_id, transactional_id: UTF-8.
        timeout_ms: how long the broker may wait for the in-sync replicas.
        batches: sealed and numbered, at least one, one a partition. Those of a topic go out together: the list is
            brought into the order of the request.
    Source: ProduceRequest.json; KIP-482 (flexible versions), KIP-516 (topic ids).
    """

def fixed_bytes(client_id: bytes | None, transactional_id: bytes | None) -> int:
    """What a request takes at most besides its topics."""

@final
class PartitionProduceResponse:
    """The end of one batch."""

    @property
    def topic(self) -> str | bytes:
        """The name, or from version 13 on the 16 bytes of the topic id."""

    @property
    def partition(self) -> int: ...
    @property
    def error_code(self) -> int: ...
    @property
    def base_offset(self) -> int:
        """Offset of the batch's first record; -1 where the broker does not tell."""

    @property
    def log_append_time_ms(self) -> int:
        """-1 if the records keep their own time."""

    @property
    def log_start_offset(self) -> int:
        """-1 before version 5."""

    @property
    def record_errors(self) -> list[tuple[int, str | None]] | None:
        """(index of the record, message) of those that made the batch fail; None before version 8 (KIP-467)."""

    @property
    def error_message(self) -> str | None: ...
    @property
    def leader_id(self) -> int:
        """The leader's node id as the broker knows it, -1 if it does not tell (KIP-951)."""

    @property
    def leader_epoch(self) -> int: ...

@final
class ProduceResponse:
    """A decoded answer."""

    @property
    def partitions(self) -> list[PartitionProduceResponse]: ...
    @property
    def throttle_time_ms(self) -> int: ...
    @property
    def node_endpoints(self) -> list[tuple[int, str, int, str | None]]:
        """(node id, host, port, rack) of the leaders that the partitions name (KIP-951)."""

def decode_produce_response(version: int, frame: bytes) -> ProduceResponse:
    """Read an answer; the bytes are not trusted.

    Args:
        version: 3 to 13, that of the request.
        frame: header and body, without the size.
    Raises:
        ProtocolError: cut short, too long, or not what the version says; never anything else.
    """

def match_answers(
    partitions: list[PartitionProduceResponse], batches: list[ProducerBatch], names: dict[str, str | bytes]
) -> list[PartitionProduceResponse]:
    """The answer of each batch of a request.

    Args:
        partitions: of the answer, in any order; it is quick if that is the order of the batches.
        names: what the request called each topic, by its name.
    Raises:
        KeyError: a partition is left out.
        ProtocolError: one is there twice, and not with the same end.
    """
