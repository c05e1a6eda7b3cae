# distutils: define_macros=CYTHON_USE_TYPE_SPECS=1
"""RecordMetadata, compiled because one is made for each awaited record.

A named tuple with the same fields takes five times as long to create and drop (measured: 185 ns against 34).

The macro above lets the class have annotations, from which other libraries (for example a web framework that turns it
into JSON) learn its field types.
"""

import cython

cimport cython.dataclasses

import dataclasses


@cython.final
@cython.auto_pickle(True)
@cython.freelist(256)
@cython.dataclasses.dataclass(frozen=True)
cdef class RecordMetadata:
    """Where an acknowledged record stands in the log; unpacks in the order of its fields."""

    topic: str
    partition: int32_t
    offset: int64_t
    timestamp_ms: int64_t
    serialized_key_size: int32_t
    serialized_value_size: int32_t

    def __iter__(self):
        return iter(dataclasses.astuple(self))


def say_types():
    """Replace C types by Python's."""
    types = {field.name: str if field.name == "topic" else int for field in dataclasses.fields(RecordMetadata)}
    RecordMetadata.__annotations__ = types
    for field in dataclasses.fields(RecordMetadata):
        field.type = types[field.name]


say_types()


cdef object new_record_metadata(str topic, int32_t partition, int64_t offset, int64_t timestamp_ms, int32_t key_size,
                                int32_t value_size):
    cdef RecordMetadata metadata = RecordMetadata.__new__(RecordMetadata)
    metadata.topic = topic
    metadata.partition = partition
    metadata.offset = offset
    metadata.timestamp_ms = timestamp_ms
    metadata.serialized_key_size = key_size
    metadata.serialized_value_size = value_size
    return metadata
