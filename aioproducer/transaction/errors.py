"""What an error means for a transaction, depending on the request that it answers: one table.

    RETRY       repeat the request after a back-off
    FIND        the same, after finding the current coordinator
    ABORTABLE   the transaction can only be aborted; the producer goes on afterwards
    FENCED      a newer producer has the transactional id, or the coordinator timed the transaction out
    FATAL       nothing helps; also for every error that the table does not name

Source: the response handlers of org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360,
KIP-588 (PRODUCER_FENCED), KIP-890 (TRANSACTION_ABORTABLE), KIP-1050 (classes of errors).
"""

from __future__ import annotations

import enum

from aioproducer.errors import (
    KafkaError,
    ProducerFencedError,
    ProtocolError,
)
from aioproducer.protocol.add_offsets_to_txn import AddOffsetsToTxnRequest
from aioproducer.protocol.add_partitions_to_txn import AddPartitionsToTxnRequest
from aioproducer.protocol.end_txn import EndTxnRequest
from aioproducer.protocol.find_coordinator import FindCoordinatorRequest
from aioproducer.protocol.init_producer_id import InitProducerIdRequest
from aioproducer.protocol.schema import UnwritableError
from aioproducer.protocol.txn_offset_commit import TxnOffsetCommitRequest


class Reaction(enum.IntEnum):
    """What to do about an error; if an answer has several, the greatest counts."""

    RETRY = 1
    FIND = 2
    ABORTABLE = 3
    FENCED = 4
    FATAL = 5


R = Reaction

EVERYWHERE = {
    2: R.RETRY,  # CORRUPT_MESSAGE
    7: R.RETRY,  # REQUEST_TIMED_OUT
    13: R.FIND,  # NETWORK_EXCEPTION
    14: R.RETRY,  # COORDINATOR_LOAD_IN_PROGRESS
    15: R.FIND,  # COORDINATOR_NOT_AVAILABLE
    16: R.FIND,  # NOT_COORDINATOR
    47: R.FENCED,  # INVALID_PRODUCER_EPOCH, used by brokers before 2.7 for PRODUCER_FENCED
    51: R.RETRY,  # CONCURRENT_TRANSACTIONS
    56: R.RETRY,  # KAFKA_STORAGE_ERROR
    89: R.RETRY,  # THROTTLING_QUOTA_EXCEEDED
    90: R.FENCED,  # PRODUCER_FENCED
    120: R.ABORTABLE,  # TRANSACTION_ABORTABLE
}

BY_REQUEST: dict[int, dict[int, Reaction]] = {
    FindCoordinatorRequest.API_KEY: {
        15: R.RETRY,  # the coordinator's topic is just being created
        30: R.ABORTABLE,  # GROUP_AUTHORIZATION_FAILED
    },
    InitProducerIdRequest.API_KEY: {},
    AddPartitionsToTxnRequest.API_KEY: {
        -1: R.ABORTABLE,  # UNKNOWN_SERVER_ERROR, e.g. more partitions than a record of the coordinator's log can hold
        3: R.RETRY,  # UNKNOWN_TOPIC_OR_PARTITION
        17: R.ABORTABLE,  # INVALID_TOPIC_EXCEPTION
        29: R.ABORTABLE,  # TOPIC_AUTHORIZATION_FAILED
        55: R.ABORTABLE,  # OPERATION_NOT_ATTEMPTED
        59: R.ABORTABLE,  # UNKNOWN_PRODUCER_ID
    },
    AddOffsetsToTxnRequest.API_KEY: {
        30: R.ABORTABLE,  # GROUP_AUTHORIZATION_FAILED
        59: R.ABORTABLE,  # UNKNOWN_PRODUCER_ID
    },
    TxnOffsetCommitRequest.API_KEY: {
        3: R.RETRY,  # UNKNOWN_TOPIC_OR_PARTITION
        7: R.FIND,  # REQUEST_TIMED_OUT
        12: R.ABORTABLE,  # OFFSET_METADATA_TOO_LARGE
        22: R.ABORTABLE,  # ILLEGAL_GENERATION
        25: R.ABORTABLE,  # UNKNOWN_MEMBER_ID
        27: R.ABORTABLE,  # REBALANCE_IN_PROGRESS
        28: R.ABORTABLE,  # INVALID_COMMIT_OFFSET_SIZE
        29: R.ABORTABLE,  # TOPIC_AUTHORIZATION_FAILED
        30: R.ABORTABLE,  # GROUP_AUTHORIZATION_FAILED
        69: R.ABORTABLE,  # GROUP_ID_NOT_FOUND
        82: R.ABORTABLE,  # FENCED_INSTANCE_ID
        110: R.ABORTABLE,  # FENCED_MEMBER_EPOCH
        113: R.ABORTABLE,  # STALE_MEMBER_EPOCH
    },
    EndTxnRequest.API_KEY: {
        59: R.ABORTABLE,  # UNKNOWN_PRODUCER_ID
    },
}


def reaction(api_key: int, error: KafkaError) -> Reaction:
    """What a request's error means, whether from the broker or from this client."""
    if isinstance(error, UnwritableError):
        return R.ABORTABLE  # nothing was sent, and a retry would not be either
    if isinstance(error, ProtocolError):
        return R.FIND  # the connection is gone; another broker's answer may make sense
    if error.code is None:
        return R.FATAL
    return reaction_to_code(api_key, error.code)


def reaction_to_code(api_key: int, code: int) -> Reaction:
    """The same for an error code."""
    return BY_REQUEST.get(api_key, {}).get(code) or EVERYWHERE.get(code, R.FATAL)


def worst(api_key: int, codes: list[int]) -> int:
    """The error code that counts in an answer with several; 0 for none.

    OPERATION_NOT_ATTEMPTED comes last: it only says that another error stopped the request.
    """
    failed = [code for code in codes if code]
    return max(failed, key=lambda code: (reaction_to_code(api_key, code), code != 55), default=0)


def as_told(what: Reaction, error: KafkaError, transactional_id: str) -> KafkaError:
    """The error as the program gets it: flagged by its meaning, and under one name where Kafka has two."""
    if what is R.FENCED:
        fenced = ProducerFencedError(
            f"the transactional id {transactional_id!r} is now used by a newer producer, or its transaction was "
            f"aborted by the coordinator after transaction_timeout_ms: {error}"
        )
        fenced.__cause__ = error
        return fenced
    return error.marked(abortable=what is R.ABORTABLE, fatal=what is R.FATAL)
