"""How the acknowledged batches of one answer end: numbers, Deliveries and memory, in one pass.

Every other kind of answer is handled in batch_outcomes.py.
"""

from libc.stdint cimport int64_t

from aioproducer._accumulator cimport RecordAccumulator
from aioproducer._produce cimport PartitionProduceResponse
from aioproducer._producer_batch cimport ProducerBatch
from aioproducer._sequences cimport SequenceBooks


cdef int end(SequenceBooks sequences, RecordAccumulator accumulator, ProducerBatch batch, int64_t base_offset,
             int64_t log_append_time_ms) except -1:
    sequences.strike_acknowledged(batch)
    # A leader that has the batch already answers its largest timestamp as the append time, although the records of the
    # topic may keep their own. Source: UnifiedLog.append.
    if batch.attempts > 1 and log_append_time_ms == batch.max_timestamp_ms:
        log_append_time_ms = -1
    if not batch.failed_early:
        batch.complete(base_offset, log_append_time_ms)
    accumulator.release(batch)
    return 0


def acknowledge(SequenceBooks sequences not None, RecordAccumulator accumulator not None, ProducerBatch batch not None,
                int64_t base_offset, int64_t log_append_time_ms):
    end(sequences, accumulator, batch, base_offset, log_append_time_ms)


def acknowledge_good(SequenceBooks sequences not None, RecordAccumulator accumulator not None, list batches not None,
                     list answers not None):
    cdef list left = []
    cdef PartitionProduceResponse answer
    cdef Py_ssize_t i
    for i in range(min(len(batches), len(answers))):
        answer = <PartitionProduceResponse?>answers[i]
        if answer.error_code == 0:
            end(sequences, accumulator, <ProducerBatch?>batches[i], answer.base_offset, answer.log_append_time_ms)
        else:
            left.append((batches[i], answer))
    return left
