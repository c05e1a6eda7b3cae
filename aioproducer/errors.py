"""Every error the producer raises; those of brokers are made from the table in ``error_codes``.

The tree, split by what the caller can do::

    KafkaError
    ├── ConfigError (ValueError)                   fix the configuration
    ├── NotStartedError, AlreadyStartedError       fix the order of calls
    ├── ProducerClosedError                        fix the order of calls
    │   └── ProducerFailedError                    fatal: close this producer, make a new one
    ├── WrongLoopError (RuntimeError)              use the producer in the loop and process that started it
    ├── TransactionStateError                      fix the order of the transaction calls
    ├── TransactionTimeoutError (TimeoutError)     make the same call again: it waits for the end
    ├── TransactionOutcomeUnknownError             look at the topic: all or nothing of it is visible
    ├── RecordTooLargeError (ValueError)           fix the record
    ├── SerializationError                         fix the record or the serializer
    │   ├── SchemaValidationError                  fix the record: it does not fit its schema or type
    │   ├── SerializerNotReadyError                prepare() the serializer, or use submit()
    │   └── SchemaRegistryError                    look at the subject, and at the permissions
    │       └── SchemaRegistryUnavailableError     look at the registry
    ├── BufferExhaustedError (BufferError)         slow down
    ├── MetadataUnavailableError                   wait for the topic's metadata, or use submit()
    ├── MetadataTimeoutError (TimeoutError)        look at the topic and the cluster
    ├── BootstrapError (TimeoutError)              look at the addresses and the network
    ├── AuthenticationError                        look at the credentials
    │   ├── TlsError                               look at the certificates
    │   └── UnsupportedSaslMechanismError, IllegalSaslStateError, SaslAuthenticationFailedError (BrokerErrors too)
    ├── DeliveryTimeoutError (TimeoutError)        look at the cluster; the record may be in the log
    ├── FlushTimeoutError (TimeoutError)           wait again; nothing was dropped
    ├── TransactionAbortedError                    the record went with its transaction
    ├── ProtocolError                              a broken peer, or a bug
    ├── DeliveryErrors (ExceptionGroup)            failures nobody had looked at, from flush() and close()
    │   └── SendManyError                          the same from send_many(), with its result
    └── BrokerError                                one class per Kafka error code, from the table of error codes
        ├── ConnectionLostError                    code 13, raised on this side when a connection ends
        ├── RequestTimedOutError (TimeoutError)    code 7, from the broker or from this side
        ├── MessageTooLargeError, RecordListTooLargeError (RecordTooLargeErrors too)
        ├── InvalidTopicError, ProducerFencedError, ...
        └── UnknownServerError                     code -1, and every number the table does not know

Code decides by the class attributes, never by text:

``retriable``         the same request may succeed later
``refresh_metadata``  what is known about the cluster is stale
``fatal``             this producer can do nothing more; close it and make a new one
``abortable``         the transaction can only be aborted; the producer goes on afterwards
``application_recoverable``  start again from what was committed last: after an abort, or with a new producer if fatal
``in_doubt``          the answer itself leaves open whether the records were appended

and by ``maybe_written`` of the instance: False means that the record is certainly not in the log; True, that nobody
knows; and ``record_refused``, which tells a record that a broker refused from the others of its batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from aioproducer.error_codes import FLAGS, Code

if TYPE_CHECKING:
    from aioproducer.records import BatchResult

MAX_GROUPED_ERRORS = 100
"""The most errors in one DeliveryErrors; further ones are only counted."""


def _upper_snake(class_name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", class_name.removesuffix("Error")).upper()


class KafkaError(Exception):
    """Root of all errors of the producer.

    Args:
        message: names topic, partition, broker, the limit that was hit and the config that moves it, where they apply.
        maybe_written: whether an attempt to write the record ended without a clear answer; it stays True over retries.
    """

    code: ClassVar[int | None] = None
    """Kafka's number; None for errors that only this client has."""
    name: ClassVar[str] = "KAFKA_ERROR"
    """Kafka's name for the code, e.g. ``NOT_LEADER_OR_FOLLOWER``; otherwise the class's own in that style."""
    retriable: ClassVar[bool] = False
    refresh_metadata: ClassVar[bool] = False
    fatal: ClassVar[bool] = False
    abortable: ClassVar[bool] = False
    application_recoverable: ClassVar[bool] = False
    in_doubt: ClassVar[bool] = False

    topic: str | None = None
    """The topic of the record that failed; None if the error is not about one."""
    partition: int | None = None
    """The partition of an admitted record that failed."""
    record_count: int | None = None
    """How many records ended with this error, if it stands for a whole batch (see DeliveryErrors)."""
    record_refused: bool = False
    """Whether a broker refused just this record, so that sending it again does not help; not if another one of its
    batch may be to blame."""

    def __init__(self, message: str = "", *, maybe_written: bool = False) -> None:
        super().__init__(message)
        self.maybe_written: bool = maybe_written

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = _upper_snake(cls.__name__)

    def __copy__(self) -> Self:
        """A copy to be raised elsewhere: the same facts and the same cause, without the traceback."""
        make, args, *state = cast(tuple[Any, ...], self.__reduce__())
        twin: Self = make(*args)
        twin.__dict__.update(*state)
        if "__notes__" in twin.__dict__:
            twin.__notes__ = list(self.__notes__)
        twin.__cause__ = self.__cause__
        return twin

    def _is_about(self, topic: object) -> None:
        """Note the topic of the record that was refused, if it is not known yet; anything but a str is none."""
        if self.topic is None and isinstance(topic, str):
            self.topic = topic

    def marked(self, *, abortable: bool = False, fatal: bool = False) -> Self:
        """A copy that says what this error means for a transaction, if the class alone does not."""
        twin = self.__copy__()
        twin.__dict__.update(abortable=abortable, fatal=fatal)
        return twin


# --- fix the call -----------------------------------------------------------------------------------------------------


class ConfigError(KafkaError, ValueError):
    """A config is unknown, has a bad value, or contradicts another one. Not in the log: nothing was sent."""


class NotStartedError(KafkaError):
    """The producer was used before ``start()``. Not in the log: the record was not admitted."""


class ProducerClosedError(KafkaError):
    """The producer was used after ``close()``, or closed before the record ended.

    In the log: no for a refused call; see ``maybe_written`` for an admitted record.
    """


class AlreadyStartedError(KafkaError, RuntimeError):
    """``start()`` was called on a started producer. Nothing was done."""


class ProducerFailedError(ProducerClosedError):
    """Something failed that the producer can't do without (an internal task, the cluster's trust): make a new producer.

    In the log: no for a refused call; see ``maybe_written`` for an admitted record. The cause is what failed.
    """

    fatal = True

    def __init__(self, message: str = "", *, cause: BaseException | None = None, maybe_written: bool = False) -> None:
        super().__init__(message, maybe_written=maybe_written)
        self.__cause__ = cause


class WrongLoopError(KafkaError, RuntimeError):
    """The producer was used from another event loop, thread or process. Not in the log: the record was not admitted."""


class TransactionTimeoutError(KafkaError, TimeoutError):
    """A transaction call did not end within ``max_block_ms``. It goes on: making the same call again waits for its end.

    In the log: all or nothing of the transaction will be visible. ``maybe_written`` is True if it is unknown which,
    because a commit is still going on or may have been made before.
    """

    retriable = True


class TransactionOutcomeUnknownError(KafkaError):
    """It can no longer be known whether a prepared transaction was committed: its transactional id has moved on.

    In the log: nobody knows (``maybe_written``); all of its records or none are visible, so compare what should have
    been written with what can be read.
    """


class TransactionStateError(KafkaError):
    """A transaction call, or a send, that the state of the transaction does not allow.

    Not in the log: nothing was done. With ``maybe_written`` it comes from an outside ``abort``: the prepared
    transaction was already committed.
    """


class RecordTooLargeError(KafkaError, ValueError):
    """A record is larger than ``max_request_size``, ``buffer_memory`` or the topic's limit.

    In the log: no; but see ``maybe_written`` if a broker refused the batch when it was sent again.
    """


class SerializationError(KafkaError):
    """A record can't be encoded: a key, value or header gives no bytes, for instance, or a serializer raised.

    The cause is the error of the serializer or of the argument. Not in the log.
    """


class SchemaValidationError(SerializationError):
    """A key or value does not fit its schema or type. Neither the message nor a cause contains any part of it.

    Not in the log.

    Args:
        topic: where the record was to go; None outside a producer.
        subject: of the schema registry; None without one.
        problems: (path of the field, what is wrong there), as many as the library reports.
    """

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        subject: str | None = None,
        problems: Sequence[tuple[str, str]] = (),
        maybe_written: bool = False,
    ) -> None:
        super().__init__(message, maybe_written=maybe_written)
        self.topic: str | None = topic
        self.subject: str | None = subject
        self.problems: tuple[tuple[str, str], ...] = tuple(problems)


class SerializerNotReadyError(SerializationError):
    """The serializer has to wait for something first, such as a schema's id, and the call does not wait.

    Not in the log: the record was not admitted.
    """

    retriable = True


class SchemaRegistryError(SerializationError):
    """A schema registry did not provide what a serializer needs; the cause is its client's error. Not in the log.

    Args:
        topic: where the record was to go.
        subject: what was asked for.
        status: of the HTTP answer, None if there was none.
        error_code: of the registry, such as 40401 for an unknown subject.
    """

    def __init__(
        self,
        message: str = "",
        *,
        topic: str | None = None,
        subject: str | None = None,
        status: int | None = None,
        error_code: int | None = None,
        maybe_written: bool = False,
    ) -> None:
        super().__init__(message, maybe_written=maybe_written)
        self.topic: str | None = topic
        self.subject: str | None = subject
        self.status: int | None = status
        self.error_code: int | None = error_code


class SchemaRegistryUnavailableError(SchemaRegistryError):
    """A schema registry did not answer within ``max_block_ms``: unreachable, failing, or slow. Not in the log."""

    retriable = True


# --- slow down, look at the cluster -----------------------------------------------------------------------------------


class BufferExhaustedError(KafkaError, BufferError):
    """``buffer_memory`` stayed full, for up to ``max_block_ms``. Not in the log: the record was not admitted."""

    retriable = True


class MetadataUnavailableError(KafkaError):
    """The topic's partitions are not known yet and the call does not wait.

    Not in the log: the record was not admitted.
    """

    retriable = True


class MetadataTimeoutError(KafkaError, TimeoutError):
    """The topic's partitions did not become known within ``max_block_ms``.

    Not in the log: the record was not admitted.
    """

    retriable = True


class BootstrapError(KafkaError, TimeoutError):
    """No bootstrap server could be used; ``failures`` has each address with the cause. Nothing was sent.

    Args:
        failures: one (address as "host:port", cause) for each address that was tried, in that order.
    """

    retriable = True

    def __init__(self, failures: Sequence[tuple[str, BaseException]] = ()) -> None:
        self.failures: tuple[tuple[str, BaseException], ...] = tuple(failures)
        tried = "".join(f"\n  {address}: {_describe(cause)}" for address, cause in self.failures)
        super().__init__(f"no bootstrap server could be used (bootstrap_servers):{tried or ' none was tried in time'}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.failures,), self.__dict__


class AuthenticationError(KafkaError):
    """A broker and this client do not accept each other. Not in the log through this connection."""


class TlsError(AuthenticationError):
    """The TLS handshake failed: certificate, host name, protocol or cipher. Nothing was sent on this connection."""


class DeliveryTimeoutError(KafkaError, TimeoutError):
    """The record was not acknowledged within ``delivery_timeout_ms``; the cause is the last error of its batch.

    In the log: see ``maybe_written``.
    """


class FlushTimeoutError(KafkaError, TimeoutError):
    """``flush(timeout)`` ran out before its records had ended. Nothing was dropped: they go on, so ``maybe_written``.
    If ``pending`` is 0, all had ended, but done callbacks are still to be called, which the loop will do, or the memory
    of records that expired in flight has not been returned yet; the message says which.

    Args:
        pending: how many of the records covered by the call had not ended.
    """

    retriable = True

    def __init__(self, message: str = "", *, pending: int = 0, maybe_written: bool = False) -> None:
        super().__init__(message, maybe_written=maybe_written)
        self.pending = pending


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted, or can only be aborted; the cause is what spoiled it, if anything did.

    In the log: see ``maybe_written``; never visible to ``read_committed`` readers in any case.
    """

    abortable = True


class ProtocolError(KafkaError):
    """Bytes that violate the Kafka protocol, from a broken peer or because of a bug. The connection is closed.

    In the log: see ``maybe_written``; the fate of whatever was in flight on the connection is unknown.
    """


# --- groups -----------------------------------------------------------------------------------------------------------


class DeliveryErrors(KafkaError, ExceptionGroup[Exception]):
    """Failed deliveries that nobody had looked at: one error per failed batch, at most 100, and a total.

    The group's ``record_count`` is the number of records that failed; that of each error inside counts the records in
    its batch. ``except*`` separates the errors by their classes; KafkaError itself matches the whole group.
    In the log: see each error's own ``maybe_written``; the group's is True if any of them is.
    """

    def __new__(cls, message: str, errors: Sequence[Exception], **_: Any) -> Self:
        return super().__new__(cls, message, errors)

    def __init__(self, message: str, errors: Sequence[Exception], *, record_count: int | None = None) -> None:
        ExceptionGroup.__init__(self, message, errors)
        self.maybe_written: bool = any(getattr(error, "maybe_written", False) for error in errors)
        self.record_count: int = (
            sum(getattr(error, "record_count", None) or 0 for error in errors) if record_count is None else record_count
        )

    @classmethod
    def of(cls, failures: Sequence[tuple[KafkaError, int]], *, total_records: int) -> Self:
        """Group the failures of whole batches.

        Args:
            failures: at least one (error, records of that batch), oldest first. The first 100 are kept as copies, so
                that an error shared by several batches counts the records of each.
            total_records: all failed records, also those of batches beyond the first 100 or not in ``failures``.
        """
        shown = [_for_batch(error, count) for error, count in failures[:MAX_GROUPED_ERRORS]]
        covered = sum(count for _, count in failures[:MAX_GROUPED_ERRORS])
        message = f"{total_records:,} records were not delivered"
        if covered < total_records:
            message += f", {covered:,} of them by the first {len(shown)} errors, which follow"
        group = cls(message, shown, record_count=total_records)
        group.maybe_written = any(error.maybe_written for error, _ in failures)
        return group

    def derive(self, errors: Sequence[Exception], /) -> Self:  # type: ignore[override]
        """The same kind of group for a part of the errors, as ``split`` and ``except*`` need it."""
        return type(self)(self.message, errors)


class SendManyError(DeliveryErrors):
    """``send_many`` or ``send_arrow`` did not deliver everything; ``result`` is its BatchResult.

    In the log: the records that ``result`` counts as acked; for the failed ones see each error's ``maybe_written``. The
    group's is also True if anything was acked: making the same call again would write that twice.
    """

    def __init__(
        self, message: str, errors: Sequence[Exception], *, record_count: int | None = None, result: Any = None
    ) -> None:
        super().__init__(message, errors, record_count=record_count)
        self.result: BatchResult = result

    @classmethod
    def of_result(
        cls, call: str, result: BatchResult, failures: Sequence[tuple[KafkaError, int]], stopped_by: Exception | None
    ) -> Self:
        """Group what went wrong in one call.

        Args:
            call: what to name it in the message.
            failures: (error, records) of failed batches and refused records.
            stopped_by: why admission stopped early, if it did; becomes the cause.
        """
        if stopped_by is not None:
            message = f"{call} stopped after {result.acked + result.failed:,} records: {_describe(stopped_by)}"
        else:
            message = f"{call}: {result.failed:,} of {result.acked + result.failed:,} records were not delivered"
        shown: list[Exception] = [_for_batch(error, count) for error, count in failures[:MAX_GROUPED_ERRORS]]
        if stopped_by is not None and all(error is not stopped_by for error, _ in failures):
            shown.insert(0, stopped_by)
        error = cls(message, shown, record_count=result.failed, result=result)
        in_doubt = any(failure.maybe_written for failure, _ in failures)
        error.maybe_written = error.maybe_written or error._has_acked or in_doubt
        error.__cause__ = stopped_by
        return error

    @property
    def _has_acked(self) -> bool:
        return getattr(self.result, "acked", 0) > 0

    def derive(self, errors: Sequence[Exception], /) -> Self:  # type: ignore[override]
        part = super().derive(errors)
        part.result = self.result
        part.maybe_written = part.maybe_written or part._has_acked
        return part


def _for_batch(error: KafkaError, record_count: int) -> KafkaError:
    twin = error.__copy__().with_traceback(error.__traceback__)
    twin.record_count = record_count
    twin.add_note(f"{record_count:,} records ended with this error")
    return twin


def _describe(cause: BaseException) -> str:
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__


# --- answers of the broker --------------------------------------------------------------------------------------------

_NOT_BY_THIS = "This attempt wrote nothing; ``maybe_written`` is True if an earlier one may have written the record."
_MAYBE = "May be in the log: the broker can send this after the leader has appended the records."

_CLASSES: dict[int, type[BrokerError]] = {}


class BrokerError(KafkaError):
    """A broker answered with an error code; each code has its own class.

    ``maybe_written`` is always True if the code itself leaves it open (``in_doubt``). Without a message, the code's
    meaning is used. In the log: see each class.
    """

    meaning: ClassVar[str] = "a broker answered with an error"

    def __init__(self, message: str = "", *, maybe_written: bool = False) -> None:
        super().__init__(message or self.meaning, maybe_written=maybe_written or self.in_doubt)

    def __init_subclass__(cls, code: Code | None = None, **kwargs: Any) -> None:
        if code is not None:
            facts = {"code": int(code), "name": code.name, "meaning": code.meaning}
            # Not as assignments: type checkers would see new attributes with types of their own.
            for attribute, value in (facts | {each: flag in code.flags for flag, each in FLAGS.items()}).items():
                setattr(cls, attribute, value)
            cls.__doc__ = f"{cls.name} ({code}): {cls.meaning}.\n\n{_MAYBE if cls.in_doubt else _NOT_BY_THIS}"
            _CLASSES[code] = cls
        super().__init_subclass__(**kwargs)


# One statement per code, for type checkers and readers; the contents of the classes come from the table.


# fmt: off
class UnknownServerError(BrokerError, code=Code.UNKNOWN_SERVER_ERROR): ...
class OffsetOutOfRangeError(BrokerError, code=Code.OFFSET_OUT_OF_RANGE): ...
class CorruptMessageError(BrokerError, code=Code.CORRUPT_MESSAGE): ...
class UnknownTopicOrPartitionError(BrokerError, code=Code.UNKNOWN_TOPIC_OR_PARTITION): ...
class InvalidFetchSizeError(BrokerError, code=Code.INVALID_FETCH_SIZE): ...
class LeaderNotAvailableError(BrokerError, code=Code.LEADER_NOT_AVAILABLE): ...
class NotLeaderOrFollowerError(BrokerError, code=Code.NOT_LEADER_OR_FOLLOWER): ...
class RequestTimedOutError(BrokerError, TimeoutError, code=Code.REQUEST_TIMED_OUT): ...
class BrokerNotAvailableError(BrokerError, code=Code.BROKER_NOT_AVAILABLE): ...
class ReplicaNotAvailableError(BrokerError, code=Code.REPLICA_NOT_AVAILABLE): ...
class MessageTooLargeError(BrokerError, RecordTooLargeError, code=Code.MESSAGE_TOO_LARGE): ...
class StaleControllerEpochError(BrokerError, code=Code.STALE_CONTROLLER_EPOCH): ...
class OffsetMetadataTooLargeError(BrokerError, code=Code.OFFSET_METADATA_TOO_LARGE): ...
class ConnectionLostError(BrokerError, code=Code.NETWORK_EXCEPTION): ...
class CoordinatorLoadInProgressError(BrokerError, code=Code.COORDINATOR_LOAD_IN_PROGRESS): ...
class CoordinatorNotAvailableError(BrokerError, code=Code.COORDINATOR_NOT_AVAILABLE): ...
class NotCoordinatorError(BrokerError, code=Code.NOT_COORDINATOR): ...
class InvalidTopicError(BrokerError, code=Code.INVALID_TOPIC_EXCEPTION): ...
class RecordListTooLargeError(BrokerError, RecordTooLargeError, code=Code.RECORD_LIST_TOO_LARGE): ...
class NotEnoughReplicasError(BrokerError, code=Code.NOT_ENOUGH_REPLICAS): ...
class NotEnoughReplicasAfterAppendError(BrokerError, code=Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND): ...
class InvalidRequiredAcksError(BrokerError, code=Code.INVALID_REQUIRED_ACKS): ...
class IllegalGenerationError(BrokerError, code=Code.ILLEGAL_GENERATION): ...
class InconsistentGroupProtocolError(BrokerError, code=Code.INCONSISTENT_GROUP_PROTOCOL): ...
class InvalidGroupIdError(BrokerError, code=Code.INVALID_GROUP_ID): ...
class UnknownMemberIdError(BrokerError, code=Code.UNKNOWN_MEMBER_ID): ...
class InvalidSessionTimeoutError(BrokerError, code=Code.INVALID_SESSION_TIMEOUT): ...
class RebalanceInProgressError(BrokerError, code=Code.REBALANCE_IN_PROGRESS): ...
class InvalidCommitOffsetSizeError(BrokerError, code=Code.INVALID_COMMIT_OFFSET_SIZE): ...
class TopicAuthorizationFailedError(BrokerError, code=Code.TOPIC_AUTHORIZATION_FAILED): ...
class GroupAuthorizationFailedError(BrokerError, code=Code.GROUP_AUTHORIZATION_FAILED): ...
class ClusterAuthorizationFailedError(BrokerError, code=Code.CLUSTER_AUTHORIZATION_FAILED): ...
class InvalidTimestampError(BrokerError, code=Code.INVALID_TIMESTAMP): ...
class UnsupportedSaslMechanismError(BrokerError, AuthenticationError, code=Code.UNSUPPORTED_SASL_MECHANISM): ...
class IllegalSaslStateError(BrokerError, AuthenticationError, code=Code.ILLEGAL_SASL_STATE): ...
class UnsupportedVersionError(BrokerError, code=Code.UNSUPPORTED_VERSION): ...
class TopicAlreadyExistsError(BrokerError, code=Code.TOPIC_ALREADY_EXISTS): ...
class InvalidPartitionsError(BrokerError, code=Code.INVALID_PARTITIONS): ...
class InvalidReplicationFactorError(BrokerError, code=Code.INVALID_REPLICATION_FACTOR): ...
class InvalidReplicaAssignmentError(BrokerError, code=Code.INVALID_REPLICA_ASSIGNMENT): ...
class InvalidConfigError(BrokerError, code=Code.INVALID_CONFIG): ...
class NotControllerError(BrokerError, code=Code.NOT_CONTROLLER): ...
class InvalidRequestError(BrokerError, code=Code.INVALID_REQUEST): ...
class UnsupportedForMessageFormatError(BrokerError, code=Code.UNSUPPORTED_FOR_MESSAGE_FORMAT): ...
class PolicyViolationError(BrokerError, code=Code.POLICY_VIOLATION): ...
class OutOfOrderSequenceNumberError(BrokerError, code=Code.OUT_OF_ORDER_SEQUENCE_NUMBER): ...
class DuplicateSequenceNumberError(BrokerError, code=Code.DUPLICATE_SEQUENCE_NUMBER): ...
class InvalidProducerEpochError(BrokerError, code=Code.INVALID_PRODUCER_EPOCH): ...
class InvalidTxnStateError(BrokerError, code=Code.INVALID_TXN_STATE): ...
class InvalidProducerIdMappingError(BrokerError, code=Code.INVALID_PRODUCER_ID_MAPPING): ...
class InvalidTransactionTimeoutError(BrokerError, code=Code.INVALID_TRANSACTION_TIMEOUT): ...
class ConcurrentTransactionsError(BrokerError, code=Code.CONCURRENT_TRANSACTIONS): ...
class TransactionCoordinatorFencedError(BrokerError, code=Code.TRANSACTION_COORDINATOR_FENCED): ...
class TransactionalIdAuthorizationFailedError(BrokerError, code=Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): ...
class SecurityDisabledError(BrokerError, code=Code.SECURITY_DISABLED): ...
class OperationNotAttemptedError(BrokerError, code=Code.OPERATION_NOT_ATTEMPTED): ...
class KafkaStorageError(BrokerError, code=Code.KAFKA_STORAGE_ERROR): ...
class LogDirNotFoundError(BrokerError, code=Code.LOG_DIR_NOT_FOUND): ...
class SaslAuthenticationFailedError(BrokerError, AuthenticationError, code=Code.SASL_AUTHENTICATION_FAILED): ...
class UnknownProducerIdError(BrokerError, code=Code.UNKNOWN_PRODUCER_ID): ...
class ReassignmentInProgressError(BrokerError, code=Code.REASSIGNMENT_IN_PROGRESS): ...
class DelegationTokenAuthDisabledError(BrokerError, code=Code.DELEGATION_TOKEN_AUTH_DISABLED): ...
class DelegationTokenNotFoundError(BrokerError, code=Code.DELEGATION_TOKEN_NOT_FOUND): ...
class DelegationTokenOwnerMismatchError(BrokerError, code=Code.DELEGATION_TOKEN_OWNER_MISMATCH): ...
class DelegationTokenRequestNotAllowedError(BrokerError, code=Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED): ...
class DelegationTokenAuthorizationFailedError(BrokerError, code=Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED): ...
class DelegationTokenExpiredError(BrokerError, code=Code.DELEGATION_TOKEN_EXPIRED): ...
class InvalidPrincipalTypeError(BrokerError, code=Code.INVALID_PRINCIPAL_TYPE): ...
class NonEmptyGroupError(BrokerError, code=Code.NON_EMPTY_GROUP): ...
class GroupIdNotFoundError(BrokerError, code=Code.GROUP_ID_NOT_FOUND): ...
class FetchSessionIdNotFoundError(BrokerError, code=Code.FETCH_SESSION_ID_NOT_FOUND): ...
class InvalidFetchSessionEpochError(BrokerError, code=Code.INVALID_FETCH_SESSION_EPOCH): ...
class ListenerNotFoundError(BrokerError, code=Code.LISTENER_NOT_FOUND): ...
class TopicDeletionDisabledError(BrokerError, code=Code.TOPIC_DELETION_DISABLED): ...
class FencedLeaderEpochError(BrokerError, code=Code.FENCED_LEADER_EPOCH): ...
class UnknownLeaderEpochError(BrokerError, code=Code.UNKNOWN_LEADER_EPOCH): ...
class UnsupportedCompressionTypeError(BrokerError, code=Code.UNSUPPORTED_COMPRESSION_TYPE): ...
class StaleBrokerEpochError(BrokerError, code=Code.STALE_BROKER_EPOCH): ...
class OffsetNotAvailableError(BrokerError, code=Code.OFFSET_NOT_AVAILABLE): ...
class MemberIdRequiredError(BrokerError, code=Code.MEMBER_ID_REQUIRED): ...
class PreferredLeaderNotAvailableError(BrokerError, code=Code.PREFERRED_LEADER_NOT_AVAILABLE): ...
class GroupMaxSizeReachedError(BrokerError, code=Code.GROUP_MAX_SIZE_REACHED): ...
class FencedInstanceIdError(BrokerError, code=Code.FENCED_INSTANCE_ID): ...
class EligibleLeadersNotAvailableError(BrokerError, code=Code.ELIGIBLE_LEADERS_NOT_AVAILABLE): ...
class ElectionNotNeededError(BrokerError, code=Code.ELECTION_NOT_NEEDED): ...
class NoReassignmentInProgressError(BrokerError, code=Code.NO_REASSIGNMENT_IN_PROGRESS): ...
class GroupSubscribedToTopicError(BrokerError, code=Code.GROUP_SUBSCRIBED_TO_TOPIC): ...
class InvalidRecordError(BrokerError, code=Code.INVALID_RECORD): ...
class UnstableOffsetCommitError(BrokerError, code=Code.UNSTABLE_OFFSET_COMMIT): ...
class ThrottlingQuotaExceededError(BrokerError, code=Code.THROTTLING_QUOTA_EXCEEDED): ...
class ProducerFencedError(BrokerError, code=Code.PRODUCER_FENCED): ...
class ResourceNotFoundError(BrokerError, code=Code.RESOURCE_NOT_FOUND): ...
class DuplicateResourceError(BrokerError, code=Code.DUPLICATE_RESOURCE): ...
class UnacceptableCredentialError(BrokerError, code=Code.UNACCEPTABLE_CREDENTIAL): ...
class InconsistentVoterSetError(BrokerError, code=Code.INCONSISTENT_VOTER_SET): ...
class InvalidUpdateVersionError(BrokerError, code=Code.INVALID_UPDATE_VERSION): ...
class FeatureUpdateFailedError(BrokerError, code=Code.FEATURE_UPDATE_FAILED): ...
class PrincipalDeserializationFailureError(BrokerError, code=Code.PRINCIPAL_DESERIALIZATION_FAILURE): ...
class SnapshotNotFoundError(BrokerError, code=Code.SNAPSHOT_NOT_FOUND): ...
class PositionOutOfRangeError(BrokerError, code=Code.POSITION_OUT_OF_RANGE): ...
class UnknownTopicIdError(BrokerError, code=Code.UNKNOWN_TOPIC_ID): ...
class DuplicateBrokerRegistrationError(BrokerError, code=Code.DUPLICATE_BROKER_REGISTRATION): ...
class BrokerIdNotRegisteredError(BrokerError, code=Code.BROKER_ID_NOT_REGISTERED): ...
class InconsistentTopicIdError(BrokerError, code=Code.INCONSISTENT_TOPIC_ID): ...
class InconsistentClusterIdError(BrokerError, code=Code.INCONSISTENT_CLUSTER_ID): ...
class TransactionalIdNotFoundError(BrokerError, code=Code.TRANSACTIONAL_ID_NOT_FOUND): ...
class FetchSessionTopicIdError(BrokerError, code=Code.FETCH_SESSION_TOPIC_ID_ERROR): ...
class IneligibleReplicaError(BrokerError, code=Code.INELIGIBLE_REPLICA): ...
class NewLeaderElectedError(BrokerError, code=Code.NEW_LEADER_ELECTED): ...
class OffsetMovedToTieredStorageError(BrokerError, code=Code.OFFSET_MOVED_TO_TIERED_STORAGE): ...
class FencedMemberEpochError(BrokerError, code=Code.FENCED_MEMBER_EPOCH): ...
class UnreleasedInstanceIdError(BrokerError, code=Code.UNRELEASED_INSTANCE_ID): ...
class UnsupportedAssignorError(BrokerError, code=Code.UNSUPPORTED_ASSIGNOR): ...
class StaleMemberEpochError(BrokerError, code=Code.STALE_MEMBER_EPOCH): ...
class MismatchedEndpointTypeError(BrokerError, code=Code.MISMATCHED_ENDPOINT_TYPE): ...
class UnsupportedEndpointTypeError(BrokerError, code=Code.UNSUPPORTED_ENDPOINT_TYPE): ...
class UnknownControllerIdError(BrokerError, code=Code.UNKNOWN_CONTROLLER_ID): ...
class UnknownSubscriptionIdError(BrokerError, code=Code.UNKNOWN_SUBSCRIPTION_ID): ...
class TelemetryTooLargeError(BrokerError, code=Code.TELEMETRY_TOO_LARGE): ...
class InvalidRegistrationError(BrokerError, code=Code.INVALID_REGISTRATION): ...
class TransactionAbortableError(BrokerError, code=Code.TRANSACTION_ABORTABLE): ...
class InvalidRecordStateError(BrokerError, code=Code.INVALID_RECORD_STATE): ...
class ShareSessionNotFoundError(BrokerError, code=Code.SHARE_SESSION_NOT_FOUND): ...
class InvalidShareSessionEpochError(BrokerError, code=Code.INVALID_SHARE_SESSION_EPOCH): ...
class FencedStateEpochError(BrokerError, code=Code.FENCED_STATE_EPOCH): ...
class InvalidVoterKeyError(BrokerError, code=Code.INVALID_VOTER_KEY): ...
class DuplicateVoterError(BrokerError, code=Code.DUPLICATE_VOTER): ...
class VoterNotFoundError(BrokerError, code=Code.VOTER_NOT_FOUND): ...
class InvalidRegularExpressionError(BrokerError, code=Code.INVALID_REGULAR_EXPRESSION): ...
class RebootstrapRequiredError(BrokerError, code=Code.REBOOTSTRAP_REQUIRED): ...
class StreamsInvalidTopologyError(BrokerError, code=Code.STREAMS_INVALID_TOPOLOGY): ...
class StreamsInvalidTopologyEpochError(BrokerError, code=Code.STREAMS_INVALID_TOPOLOGY_EPOCH): ...
class StreamsTopologyFencedError(BrokerError, code=Code.STREAMS_TOPOLOGY_FENCED): ...
class ShareSessionLimitReachedError(BrokerError, code=Code.SHARE_SESSION_LIMIT_REACHED): ...
# fmt: on


def error_class(code: int) -> type[BrokerError]:
    """The class of an error code; UnknownServerError for numbers the table does not know."""
    return _CLASSES.get(code, UnknownServerError)


def broker_error(code: int, message: str | None = None, *, maybe_written: bool = False) -> BrokerError:
    """The error for a broker's answer.

    Args:
        code: any error code but 0; one that is not in the table becomes an UnknownServerError that names it.
        message: the broker's own, or what the caller can say about topic, partition and broker.
        maybe_written: what is known about earlier attempts; the code may add its own doubt.
    """
    cls = error_class(code)
    if code not in _CLASSES:
        message = f"unknown error code {code}: {message or cls.meaning}"
    return cls(message or "", maybe_written=maybe_written)
