"""What an error means for a transaction, depending on the request that it answers: one table.

    RETRY_SOON  repeat the request after a back-off, but only a few times; then it is FATAL
    RETRY       the same, as often as it takes
    FIND        the same, after finding the current coordinator
    ABORTABLE   the transaction can only be aborted; the producer goes on afterwards
    FENCED      a newer producer has the transactional id, or the coordinator timed the transaction out
    FATAL       nothing helps; also for every error that the table does not name

Source: the response handlers of org.apache.kafka.clients.producer.internals.TransactionManager; KIP-98, KIP-360,
KIP-588 (PRODUCER_FENCED), KIP-890 (TRANSACTION_ABORTABLE), KIP-1050 (classes of errors).
"""

from __future__ import annotations

import enum

from aioproducer.error_codes import Code
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

    RETRY_SOON = 1
    RETRY = 2
    FIND = 3
    ABORTABLE = 4
    FENCED = 5
    FATAL = 6


R = Reaction

EVERYWHERE: dict[int, Reaction] = {
    Code.CORRUPT_MESSAGE: R.RETRY,
    Code.REQUEST_TIMED_OUT: R.RETRY,
    Code.NETWORK_EXCEPTION: R.FIND,
    Code.COORDINATOR_LOAD_IN_PROGRESS: R.RETRY,
    Code.COORDINATOR_NOT_AVAILABLE: R.FIND,
    Code.NOT_COORDINATOR: R.FIND,
    Code.INVALID_PRODUCER_EPOCH: R.FENCED,  # used by brokers before 2.7 for PRODUCER_FENCED
    Code.CONCURRENT_TRANSACTIONS: R.RETRY,
    Code.KAFKA_STORAGE_ERROR: R.RETRY,
    Code.THROTTLING_QUOTA_EXCEEDED: R.RETRY,
    Code.PRODUCER_FENCED: R.FENCED,
    Code.TRANSACTION_ABORTABLE: R.ABORTABLE,
}

BY_REQUEST: dict[int, dict[int, Reaction]] = {
    FindCoordinatorRequest.API_KEY: {
        Code.COORDINATOR_NOT_AVAILABLE: R.RETRY,  # the coordinator's topic is just being created
        Code.GROUP_AUTHORIZATION_FAILED: R.ABORTABLE,
    },
    InitProducerIdRequest.API_KEY: {},
    AddPartitionsToTxnRequest.API_KEY: {
        Code.UNKNOWN_SERVER_ERROR: R.ABORTABLE,  # e.g. more partitions than a record of the coordinator's log can hold
        Code.UNKNOWN_TOPIC_OR_PARTITION: R.RETRY,
        Code.INVALID_TOPIC_EXCEPTION: R.ABORTABLE,
        Code.TOPIC_AUTHORIZATION_FAILED: R.ABORTABLE,
        Code.OPERATION_NOT_ATTEMPTED: R.ABORTABLE,
        Code.UNKNOWN_PRODUCER_ID: R.ABORTABLE,
    },
    AddOffsetsToTxnRequest.API_KEY: {
        Code.GROUP_AUTHORIZATION_FAILED: R.ABORTABLE,
        Code.UNKNOWN_PRODUCER_ID: R.ABORTABLE,
    },
    TxnOffsetCommitRequest.API_KEY: {
        Code.UNKNOWN_TOPIC_OR_PARTITION: R.RETRY,
        Code.REQUEST_TIMED_OUT: R.FIND,
        Code.OFFSET_METADATA_TOO_LARGE: R.ABORTABLE,
        Code.ILLEGAL_GENERATION: R.ABORTABLE,
        Code.UNKNOWN_MEMBER_ID: R.ABORTABLE,
        Code.REBALANCE_IN_PROGRESS: R.ABORTABLE,
        Code.INVALID_COMMIT_OFFSET_SIZE: R.ABORTABLE,
        Code.TOPIC_AUTHORIZATION_FAILED: R.ABORTABLE,
        Code.GROUP_AUTHORIZATION_FAILED: R.ABORTABLE,
        Code.GROUP_ID_NOT_FOUND: R.ABORTABLE,
        Code.FENCED_INSTANCE_ID: R.ABORTABLE,
        Code.FENCED_MEMBER_EPOCH: R.ABORTABLE,
        Code.STALE_MEMBER_EPOCH: R.ABORTABLE,
    },
    EndTxnRequest.API_KEY: {
        # Kafka's answer while a newer producer's InitProducerId is being carried out; afterwards it says FENCED.
        Code.UNKNOWN_SERVER_ERROR: R.RETRY_SOON,
        Code.UNKNOWN_PRODUCER_ID: R.ABORTABLE,
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
    secondary = Code.OPERATION_NOT_ATTEMPTED
    return max(failed, key=lambda code: (reaction_to_code(api_key, code), code != secondary), default=0)


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
