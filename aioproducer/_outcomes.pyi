"""How the acknowledged batches of one answer end: numbers, Deliveries and memory, in one pass."""

from aioproducer._accumulator import RecordAccumulator
from aioproducer._produce import PartitionProduceResponse
from aioproducer._producer_batch import ProducerBatch
from aioproducer._sequences import SequenceBooks

def acknowledge(
    sequences: SequenceBooks,
    accumulator: RecordAccumulator,
    batch: ProducerBatch,
    base_offset: int,
    log_append_time_ms: int,
) -> None:
    """End a batch as acknowledged at the level of ``acks``; -1 for values the broker did not report."""

def acknowledge_good(
    sequences: SequenceBooks,
    accumulator: RecordAccumulator,
    batches: list[ProducerBatch],
    answers: list[PartitionProduceResponse],
) -> list[tuple[ProducerBatch, PartitionProduceResponse]]:
    """End the batches whose answer has no error; returns the others, unchanged, with their answers.

    Args:
        answers: one per batch, in the same order.
    """
