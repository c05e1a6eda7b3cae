"""Record batch v2 in memory; Python reaches it only through the batches of ``_accumulator``, and here."""

from typing import TypeAlias

from typing_extensions import Buffer

SplitRecord: TypeAlias = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

def split_records(data: Buffer, record_count: int) -> list[SplitRecord]:
    """Cut an uncompressed records section into its records, in order.

    Args:
        data: the records section alone, without the 61-byte batch header; contiguous.
        record_count: how many records it holds.
    Returns:
        One (timestamp delta in ms to the batch's base timestamp, key, value, headers) per record; headers are None if
        there are none.
    Raises:
        ProtocolError: a length is wrong, or bytes are missing or left over; never any other error.
    Source: Kafka's message format, record batch with magic 2 (KIP-98).
    """
