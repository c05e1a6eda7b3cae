"""The error tree: flags of every code, second bases, copies, groups."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from aioproducer import BatchResult, Producer, Record, errors
from aioproducer.error_codes import Code
from aioproducer.errors import (
    BootstrapError,
    BrokerError,
    BufferExhaustedError,
    ConnectionLostError,
    DeliveryErrors,
    DeliveryTimeoutError,
    FlushTimeoutError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    MetadataUnavailableError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProducerFencedError,
    RequestTimedOutError,
    SendManyError,
    UnknownServerError,
    broker_error,
    error_class,
)
from aioproducer.testing import FakeCluster

CODES = [int(code) for code in Code]

# What Kafka 4.3.1 prints for its own table (org.apache.kafka.common.protocol.Errors).
RETRIABLE = {
    *(2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 41, 51, 56, 70, 71, 72, 74, 75, 78),
    *(80, 83, 84, 88, 89, 100, 103, 106, 122, 123, 133),
}
# Its subclasses of InvalidMetadataException.
REFRESH_METADATA = {3, 5, 6, 9, 13, 56, 72, 74, 80, 83, 84, 100, 103}
# Codes that end a producer if returned for a batch, or that only occur in answers to transaction requests.
FATAL = {31, 35, 50, 53, 90}
ABORTABLE = {-1, 22, 25, 29, 30, 47, 48, 49, 55, 59, 82, 120}
# Codes that a broker can send after the leader has appended the batch, and 46, which says that it did so before.
IN_DOUBT = {-1, 3, 6, 7, 13, 20, 46, 56}

FIXED_NAMES = [
    "ConfigError",
    "BootstrapError",
    "NotStartedError",
    "ProducerClosedError",
    "MetadataTimeoutError",
    "MetadataUnavailableError",
    "BufferExhaustedError",
    "RecordTooLargeError",
    "SerializationError",
    "DeliveryTimeoutError",
    "FlushTimeoutError",
    "DeliveryErrors",
    "SendManyError",
    "AuthenticationError",
    "TlsError",
    "ProducerFencedError",
    "InvalidTopicError",
    "TransactionStateError",
    "TransactionAbortedError",
]


def all_classes(base: type[KafkaError] = KafkaError) -> list[type[KafkaError]]:
    return [base, *(each for child in base.__subclasses__() for each in all_classes(child))]


CLASSES = sorted({cls for cls in all_classes() if cls.__module__ == errors.__name__}, key=lambda cls: cls.__name__)


def made(cls: type[KafkaError]) -> KafkaError:
    """One error of any class, with everything set that it can hold."""
    if cls is BootstrapError:
        return BootstrapError([("a:9092", ConnectionRefusedError(111, "refused")), ("b:9092", TimeoutError())])
    if issubclass(cls, DeliveryErrors):
        inner = [ConnectionLostError("gone"), InvalidTopicError("no")]
        options: dict[str, Any] = {"result": ("acked", 3)} if cls is SendManyError else {}
        return cls("two batches", inner, record_count=7, **options)
    options = {"pending": 4} if cls is FlushTimeoutError else {}
    return cls("orders-3 on broker 2", maybe_written=True, **options)


# --- the table --------------------------------------------------------------------------------------------------------


def test_table_holds_every_code_once() -> None:
    """Kafka 4.3 has the codes -1 to 133; 0 is success."""
    assert set(CODES) == {-1, *range(1, 134)}
    assert len(CODES) == 134


@pytest.mark.parametrize("code", CODES)
def test_each_class_has_the_flags_that_a_producer_acts_on(code: int) -> None:
    cls = error_class(code)
    assert cls.code == code
    assert cls.retriable == (code in RETRIABLE)
    assert cls.refresh_metadata == (code in REFRESH_METADATA)
    assert cls.fatal == (code in FATAL)
    assert cls.abortable == (code in ABORTABLE)
    assert cls.in_doubt == (code in IN_DOUBT)


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_an_importable_class(code: int) -> None:
    """The class is in the module under Kafka's name of the code."""
    cls = error_class(code)
    assert getattr(errors, cls.__name__) is cls
    if code != 13:  # Kafka's own name for it, network exception, says less
        words = cls.name.removesuffix("_EXCEPTION").removesuffix("_ERROR").split("_")
        assert cls.__name__ == "".join(map(str.capitalize, words)) + "Error"


def test_type_checkers_see_a_class_for_every_code() -> None:
    """They read the source: each class has its own statement there, with its code."""
    written = {
        node.name: ast.unparse(keyword.value)
        for node in ast.parse(inspect.getsource(errors)).body
        if isinstance(node, ast.ClassDef)
        for keyword in node.keywords
    }
    assert written == {error_class(code).__name__: f"Code.{code.name}" for code in Code}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_docstring_says_what_it_means_for_the_log(cls: type[KafkaError]) -> None:
    """Code that catches an error must know whether the record can be in the log."""
    assert cls.__doc__
    if issubclass(cls, BrokerError) and cls is not BrokerError:
        assert ("May be in the log" in cls.__doc__) == cls.in_doubt


def test_fixed_names_exist() -> None:
    """Names that users catch."""
    assert all(issubclass(getattr(errors, name), KafkaError) for name in FIXED_NAMES)


def test_tree_in_the_docstring_is_complete() -> None:
    """The module's docstring has the tree of errors: all classes except those for broker codes."""
    assert errors.__doc__
    for cls in CLASSES:
        if not issubclass(cls, BrokerError) or cls.__bases__ != (BrokerError,):
            assert cls.__name__ in errors.__doc__, cls


# --- classes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("ConfigError", ValueError),
        ("RecordTooLargeError", ValueError),
        ("BufferExhaustedError", BufferError),
        ("BootstrapError", TimeoutError),
        ("MetadataTimeoutError", TimeoutError),
        ("DeliveryTimeoutError", TimeoutError),
        ("FlushTimeoutError", TimeoutError),
        ("RequestTimedOutError", TimeoutError),
        ("WrongLoopError", RuntimeError),
        ("DeliveryErrors", ExceptionGroup),
        ("SendManyError", DeliveryErrors),
        ("MessageTooLargeError", errors.RecordTooLargeError),
        ("UnsupportedSaslMechanismError", errors.AuthenticationError),
        ("IllegalSaslStateError", errors.AuthenticationError),
        ("SaslAuthenticationFailedError", errors.AuthenticationError),
        ("TlsError", errors.AuthenticationError),
    ],
)
def test_second_bases(name: str, base: type[BaseException]) -> None:
    """Errors can be caught by Python's corresponding classes."""
    assert issubclass(getattr(errors, name), base)
    assert issubclass(getattr(errors, name), KafkaError)


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        (KafkaError, "KAFKA_ERROR"),
        (BufferExhaustedError, "BUFFER_EXHAUSTED"),
        (NotLeaderOrFollowerError, "NOT_LEADER_OR_FOLLOWER"),
        (ConnectionLostError, "NETWORK_EXCEPTION"),
        (UnknownServerError, "UNKNOWN_SERVER_ERROR"),
        (DeliveryErrors, "DELIVERY_ERRORS"),
    ],
)
def test_an_error_has_kafkas_name_or_one_in_that_style(cls: type[KafkaError], name: str) -> None:
    """Kafka's name for its codes; for other errors, the class name in that style."""
    assert cls.name == name


def test_errors_that_only_this_side_knows_have_no_code() -> None:
    """Nor any flag: whether to send the record again is for ``maybe_written`` to say."""
    error = DeliveryTimeoutError("late")
    assert error.code is None
    assert not any([error.retriable, error.refresh_metadata, error.fatal, error.abortable, error.in_doubt])


def test_calls_that_may_succeed_later_are_retriable() -> None:
    """A program that puts aside what is not retriable must not lose all records of a short outage."""
    for cls in BufferExhaustedError, MetadataTimeoutError, MetadataUnavailableError, BootstrapError, FlushTimeoutError:
        assert cls.retriable


def test_maybe_written_is_false_unless_somebody_doubts() -> None:
    """It is set by the caller, who knows of earlier attempts, or by the code itself."""
    assert not KafkaError("x").maybe_written
    assert KafkaError("x", maybe_written=True).maybe_written
    assert not NotEnoughReplicasError("x").maybe_written
    assert NotEnoughReplicasError("x", maybe_written=True).maybe_written
    assert NotLeaderOrFollowerError("x").maybe_written


def test_subclasses_of_users_keep_the_facts() -> None:
    """A class derived from a broker error is still that error, under its own name or an inherited one."""

    class OurFencedError(ProducerFencedError):
        """Ours."""

    assert OurFencedError.code == 90
    assert OurFencedError("x").fatal
    assert error_class(90) is ProducerFencedError


# --- answers of a broker ----------------------------------------------------------------------------------------------


def test_broker_error() -> None:
    """The class of the code, with the message that the caller has."""
    error = broker_error(6, "orders-3: broker 2 is not the leader")
    assert type(error) is NotLeaderOrFollowerError
    assert str(error) == "orders-3: broker 2 is not the leader"


@pytest.mark.parametrize("message", [None, ""])
def test_broker_error_without_a_message(message: str | None) -> None:
    """Then the message is the meaning of the code."""
    assert str(broker_error(90, message)) == ProducerFencedError.meaning
    assert str(ProducerFencedError()) == ProducerFencedError.meaning


@pytest.mark.parametrize("code", [134, 999, -2, 32767])
def test_unknown_codes(code: int) -> None:
    """A code from a newer broker counts as -1, and its number is not lost."""
    error = broker_error(code, "of the future")
    assert error_class(code) is type(error) is UnknownServerError
    assert str(code) in str(error)
    assert "of the future" in str(error)
    assert str(code) in str(broker_error(code))


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(
    "duplicate",
    [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_copies_keep_everything(cls: type[KafkaError], duplicate: Any) -> None:
    """Errors cross process borders and are raised to several tasks: nothing of them gets lost."""
    error = made(cls)
    error.add_note("seen")
    twin = duplicate(error)
    assert type(twin) is cls
    assert str(twin) == str(error)
    assert repr(twin.__dict__) == repr(error.__dict__)
    assert twin.maybe_written == error.maybe_written
    assert twin.__notes__ == ["seen"]


def test_copy_keeps_the_cause_but_not_the_traceback() -> None:
    """A copy raised elsewhere keeps the cause, and gets its own traceback."""
    cause = OSError(104, "reset")
    with pytest.raises(DeliveryTimeoutError) as caught:
        raise DeliveryTimeoutError("late", maybe_written=True) from cause
    twin = copy.copy(caught.value)
    assert twin.__cause__ is cause
    assert twin.__traceback__ is None


def test_notes_of_a_copy_are_its_own() -> None:
    """A note added to one of two copies does not show up in the other."""
    error = InvalidTopicError("no")
    error.add_note("both")
    twin = copy.copy(error)
    twin.add_note("one")
    assert error.__notes__ == ["both"]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_raise_from(cls: type[KafkaError]) -> None:
    """Every error can be raised from a cause and caught as what it is."""
    cause = OSError(104, "reset")
    with pytest.raises(cls) as caught:
        raise made(cls) from cause
    assert caught.value.__cause__ is cause


# --- errors with more to say ------------------------------------------------------------------------------------------


def test_bootstrap_error_names_every_address_and_cause() -> None:
    """The message is all that a user sees when a program starts."""
    error = made(BootstrapError)
    assert isinstance(error, BootstrapError)
    assert [address for address, _ in error.failures] == ["a:9092", "b:9092"]
    assert str(error).splitlines() == [
        "no bootstrap server could be used (bootstrap_servers):",
        "  a:9092: ConnectionRefusedError: [Errno 111] refused",
        "  b:9092: TimeoutError",
    ]


def test_bootstrap_error_without_an_attempt() -> None:
    """The time may be over before the first address is tried."""
    assert "none was tried" in str(BootstrapError([]))


def test_flush_timeout_tells_what_is_pending() -> None:
    """So that the caller can decide whether to wait again."""
    assert FlushTimeoutError("3 records pending", pending=3).pending == 3


# --- groups -----------------------------------------------------------------------------------------------------------


def test_group_holds_one_error_a_batch_with_its_count() -> None:
    """The counts of the batches and the total can be read without parsing text."""
    group = DeliveryErrors.of([(ConnectionLostError("gone"), 5), (InvalidTopicError("no"), 3)], total_records=8)
    assert group.record_count == 8
    assert [(type(error), error.record_count) for error in group.exceptions if isinstance(error, KafkaError)] == [
        (ConnectionLostError, 5),
        (InvalidTopicError, 3),
    ]
    assert group.maybe_written
    assert str(group) == "8 records were not delivered (2 sub-exceptions)"
    assert group.exceptions[0].__notes__ == ["5 records ended with this error"]


def test_group_is_bounded() -> None:
    """At most 100 errors, then only the total goes on."""
    group = DeliveryErrors.of([(InvalidTopicError(str(n)), 10) for n in range(250)], total_records=2_500)
    assert [str(error) for error in group.exceptions] == [str(n) for n in range(100)]
    assert group.record_count == 2_500
    assert "2,500 records" in str(group)
    assert "1,000 of them by the first 100 errors" in str(group)


def test_group_of_one_error_shared_by_batches() -> None:
    """One error that ended several batches is shown for each, and itself stays as it was."""
    cause = OSError("why")
    fenced = ProducerFencedError("gone")
    fenced.__cause__ = cause
    group = DeliveryErrors.of([(fenced, 2), (fenced, 4)], total_records=6)
    assert [error.record_count for error in group.exceptions if isinstance(error, KafkaError)] == [2, 4]
    assert all(error.__cause__ is cause for error in group.exceptions)
    assert fenced.record_count is None
    assert not hasattr(fenced, "__notes__")


def test_group_keeps_the_traceback_of_its_errors() -> None:
    """They show where a batch failed."""
    with pytest.raises(InvalidTopicError) as caught:
        raise InvalidTopicError("no")
    group = DeliveryErrors.of([(caught.value, 1)], total_records=1)
    assert group.exceptions[0].__traceback__ is caught.value.__traceback__ is not None


def test_group_without_doubt() -> None:
    """The group is in doubt only if one of its errors is."""
    assert not DeliveryErrors.of([(InvalidTopicError("no"), 3)], total_records=3).maybe_written


def test_split_and_subgroup() -> None:
    """Parts of a group are groups of the same kind, with the count and the doubt of their own errors."""
    group = DeliveryErrors.of([(ConnectionLostError("gone"), 5), (InvalidTopicError("no"), 3)], total_records=100)
    invalid, rest = group.split(InvalidTopicError)
    assert isinstance(invalid, DeliveryErrors)
    assert isinstance(rest, DeliveryErrors)
    assert (invalid.record_count, invalid.maybe_written) == (3, False)
    assert (rest.record_count, rest.maybe_written) == (5, True)
    assert group.subgroup(ProducerFencedError) is None


def test_except_star() -> None:
    """``except*`` separates the errors; the rest is raised on as a DeliveryErrors."""
    caught: list[BaseException] = []
    with pytest.raises(DeliveryErrors) as rest:  # noqa: PT012
        try:
            raise DeliveryErrors.of([(RequestTimedOutError("late"), 1), (InvalidTopicError("no"), 2)], total_records=3)
        except* TimeoutError as group:
            caught.extend(group.exceptions)
    assert [type(error) for error in caught] == [RequestTimedOutError]
    assert rest.value.record_count == 2


def test_send_many_error_carries_its_result_through_a_split() -> None:
    """It may also hold an exception of the caller's iterable."""
    error = SendManyError("stopped", [ValueError("the iterable"), InvalidTopicError("no")], result="result")
    invalid, rest = error.split(InvalidTopicError)
    assert isinstance(invalid, SendManyError)
    assert isinstance(rest, SendManyError)
    assert invalid.result == rest.result == error.result == "result"
    assert [type(each) for each in rest.exceptions] == [ValueError]
    assert error.record_count == 0


def test_send_many_error_knows_of_what_was_acknowledged() -> None:
    """Repeating the call would duplicate acknowledged records."""
    refused = [(InvalidTopicError("no"), 1)]
    some, none = BatchResult(2, 1, {}, []), BatchResult(0, 1, {}, [])
    error = SendManyError.of_result("send_many", some, refused, ValueError("the iterable"))
    assert error.maybe_written
    assert all(part is not None and part.maybe_written for part in error.split(InvalidTopicError))
    assert copy.copy(error).maybe_written
    assert pickle.loads(pickle.dumps(error)).maybe_written
    assert not SendManyError.of_result("send_many", none, refused, None).maybe_written


@pytest.mark.parametrize(
    "group",
    [
        lambda failures: DeliveryErrors.of(failures, total_records=101),
        lambda failures: SendManyError.of_result("send_many", BatchResult(0, 101, {}, []), failures, None),
    ],
    ids=["DeliveryErrors", "SendManyError"],
)
def test_doubt_beyond_the_errors_that_are_shown(group: Callable[[list[tuple[KafkaError, int]]], KafkaError]) -> None:
    sure: list[tuple[KafkaError, int]] = [(InvalidTopicError("no"), 1)] * 100
    assert not group([*sure, (InvalidTopicError("no"), 1)]).maybe_written
    assert group([*sure, (ConnectionLostError("gone", maybe_written=True), 1)]).maybe_written


def test_group_can_be_caught_as_a_kafka_error() -> None:
    """A plain ``except KafkaError`` around a flush is enough."""
    with pytest.raises(KafkaError):
        raise made(DeliveryErrors)


USER_CODE: dict[str, dict[str, Any]] = {
    "compiled": {},
    "with a serializer": {"key_serializer": lambda key: key},
    "with a partitioner": {"partitioner_class": lambda *_: 0},
}


@pytest.mark.parametrize("configs", USER_CODE.values(), ids=USER_CODE)
async def test_the_error_of_a_refused_record_has_its_topic(
    fake_kafka_cluster: FakeCluster, configs: dict[str, Any]
) -> None:
    """However it was sent; also a topic of its own, in a call about many."""
    async with Producer(
        bootstrap_servers=fake_kafka_cluster.bootstrap_servers, max_request_size=1_000, **configs
    ) as producer:
        for topic in ("orders", "others"):
            await producer.partitions_for(topic)
        told: list[KafkaError] = []
        for refused in ({"value": bytes(5_000)}, {"value": b"", "headers": 7}, {"value": b"", "timestamp_ms": -1}):
            with pytest.raises(KafkaError) as at_once:
                producer.submit_nowait("orders", **refused)
            told.append(at_once.value)
            for call in (producer.submit, producer.send):
                with pytest.raises(KafkaError) as raised:
                    await call("orders", **refused)
                told.append(raised.value)
        with pytest.raises(KafkaError) as of_no_topic:
            producer.submit_nowait(7, b"")  # type: ignore[arg-type]
        many = await producer.send_many(
            "orders",
            [Record(b"", topic=topic, timestamp_ms=-1) for topic in (None, "others", 7)],  # type: ignore[arg-type]
            raise_on_error=False,
        )
        table = pa.table({"value": [bytes(5_000)] * 3, "topic": [b"orders", b"others", b"\xff"]})
        rows = await producer.send_arrow(None, table, topic_column="topic", raise_on_error=False)
    assert [(error.topic, error.partition) for error in told] == [("orders", None)] * 9
    assert of_no_topic.value.topic is None
    for result in (many, rows):
        assert [getattr(error, "topic", "") for _, error in result.errors] == ["orders", "others", None]
