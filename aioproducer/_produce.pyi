"""Produce requests and responses as bytes: the one API whose code is not generated from the schema."""

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
    """A whole Produce frame, with its size, as a list of buffers: gathered fields, and records in place.

    Batches with records of up to 4 KiB are copied into the buffers of the fields around them.

    Args:
        version: 3 to 13. Topics are given by ``topic_id`` from 13 on, by name before.
        client_id, transactional_id: UTF-8.
        timeout_ms: how long the broker may wait for the in-sync replicas.
        batches: sealed and numbered, at least one, one per partition. The list is sorted in place into request
            order, which groups them by topic.
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
        """Offset of the batch's first record; -1 if the broker does not report it."""

    @property
    def log_append_time_ms(self) -> int:
        """-1 if the records keep their own time."""

    @property
    def log_start_offset(self) -> int:
        """-1 before version 5."""

    @property
    def record_errors(self) -> list[tuple[int, str | None]] | None:
        """(index, message) of the records that made the batch fail (KIP-467); None: the broker named none."""

    @property
    def error_message(self) -> str | None: ...
    @property
    def leader_id(self) -> int:
        """The leader's node id as the broker knows it, -1 if not reported (KIP-951)."""

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
        """(node id, host, port, rack) of the leaders named by the partitions (KIP-951)."""

def decode_produce_response(version: int, frame: bytes) -> ProduceResponse:
    """Decode an answer; the bytes are not trusted.

    Args:
        version: 3 to 13, that of the request.
        frame: header and body, without the size.
    Raises:
        ProtocolError: truncated, too long, or not valid for the version; never any other error.
    """

def topic_names(batches: list[ProducerBatch], version: int) -> list[str | bytes]:
    """How a request of this version names the topic of each batch: by its name, from version 13 on by its id."""

def all_have_topic_ids(batches: list[ProducerBatch]) -> bool:
    """Whether the broker has given an id to each batch's topic."""

def match_answers(
    partitions: list[PartitionProduceResponse], batches: list[ProducerBatch], names: list[str | bytes]
) -> list[PartitionProduceResponse]:
    """The answer to each batch of a request.

    Args:
        partitions: of the answer, in any order; fastest in the order of the batches.
        names: how the request named the topic of each batch.
    Raises:
        KeyError: a partition is missing.
        ProtocolError: a partition occurs twice with different results.
    """
