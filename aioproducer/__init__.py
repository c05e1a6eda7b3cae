"""An Apache Kafka producer for asyncio, with a compiled core.

async with Producer(bootstrap_servers="localhost:9092") as producer:
    metadata = await producer.send("orders", b"value", key=b"key")
"""

# Compiled modules alone import these, where tools that bundle programs, such as PyInstaller, don't see it.
import crc32c as _crc32c  # noqa: F401

try:
    from aioproducer import (  # type: ignore[attr-defined]
        _arrow_columns,  # noqa: F401
        _buffer_pool,  # noqa: F401
        _built_in_partitioner,  # noqa: F401
        _record_batch,  # noqa: F401
        _topic_index,  # noqa: F401
    )
except ImportError as _error:
    if _error.name != __name__:
        raise  # they are there, and say themselves what is wrong
    raise ImportError(
        f"the compiled core of aioproducer can't be imported from {__path__[0]}. If that is a checkout: run Python in "
        "another folder, where it finds the installed package; or build the core here: pip install -e ."
    ) from _error
from aioproducer._delivery import Delivery
from aioproducer.config.keywords import ProducerConfigs
from aioproducer.errors import (
    AlreadyStartedError,
    AuthenticationError,
    BootstrapError,
    BrokerError,
    BufferExhaustedError,
    ConfigError,
    DeliveryErrors,
    DeliveryTimeoutError,
    FlushTimeoutError,
    InvalidTopicError,
    KafkaError,
    MetadataTimeoutError,
    MetadataUnavailableError,
    NotStartedError,
    ProducerClosedError,
    ProducerFailedError,
    ProducerFencedError,
    ProtocolError,
    RecordTooLargeError,
    SendManyError,
    SerializationError,
    TlsError,
    TransactionAbortedError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    TransactionTimeoutError,
    WrongLoopError,
)
from aioproducer.health import ProducerHealth, ProducerState
from aioproducer.oauth_token import OAuthToken
from aioproducer.producer import Producer
from aioproducer.records import (
    BatchResult,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    PartitionInfo,
    PreparedTransaction,
    Record,
    RecordMetadata,
    TopicPartition,
)
from aioproducer.version import VERSION as __version__

__all__ = [
    "AlreadyStartedError",
    "AuthenticationError",
    "BatchResult",
    "BootstrapError",
    "BrokerError",
    "BufferExhaustedError",
    "ConfigError",
    "ConsumerGroupMetadata",
    "Delivery",
    "DeliveryErrors",
    "DeliveryTimeoutError",
    "FlushTimeoutError",
    "InvalidTopicError",
    "KafkaError",
    "MetadataTimeoutError",
    "MetadataUnavailableError",
    "NotStartedError",
    "OAuthToken",
    "OffsetAndMetadata",
    "PartitionInfo",
    "PreparedTransaction",
    "Producer",
    "ProducerClosedError",
    "ProducerConfigs",
    "ProducerFailedError",
    "ProducerFencedError",
    "ProducerHealth",
    "ProducerState",
    "ProtocolError",
    "Record",
    "RecordMetadata",
    "RecordTooLargeError",
    "SendManyError",
    "SerializationError",
    "TlsError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionOutcomeUnknownError",
    "TransactionStateError",
    "TransactionTimeoutError",
    "WrongLoopError",
    "__version__",
]
