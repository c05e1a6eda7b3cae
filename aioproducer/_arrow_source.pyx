"""ArrowSource: another library's data, taken over by the Arrow C data interface and released with this object.

What is trusted. The interface gives the start of each buffer, not its end. So lengths are checked against each other,
offsets for their order, views and indices against what they point into, and any contradiction ends the call with a
CorruptArrowError.

Source: the Arrow C data and stream interfaces, the Arrow PyCapsule interface.
"""

import cython

from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport UINT64_MAX, uint8_t, uint64_t
from libc.string cimport memcpy

from aioproducer.errors import SerializationError
from aioproducer.message_text import excerpt


class CorruptArrowError(SerializationError):
    """Buffers that contradict their own lengths: nothing from this source can be trusted."""


@cython.final
cdef class ArrowBatch:

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)


@cython.final
cdef class ArrowSource:

    def __cinit__(self, data):
        # A record batch has both interfaces; as an array it is complete at once, with nothing more to fetch.
        if hasattr(data, "__arrow_c_array__"):
            self.take_array(*data.__arrow_c_array__())
        elif hasattr(data, "__arrow_c_stream__"):
            self.take_stream(data.__arrow_c_stream__())
        else:
            raise TypeError(
                f"data is a {type(data).__name__}; an object with the Arrow PyCapsule interface is needed "
                "(pyarrow, polars, DuckDB, pandas)"
            )
        if self.schema.release == NULL or self.schema.format == NULL or self.schema.format != b"+s":
            raise TypeError(f"data is a {type(data).__name__} that has no columns; a table or record batch is needed")

    def __dealloc__(self):
        if self.stream.release != NULL:
            self.stream.release(&self.stream)
        if self.schema.release != NULL:
            self.schema.release(&self.schema)

    def take_stream(self, capsule):
        cdef ArrowArrayStream* stream
        if not PyCapsule_IsValid(capsule, b"arrow_array_stream"):
            raise TypeError("__arrow_c_stream__ returned no capsule of an Arrow stream")
        stream = <ArrowArrayStream*>PyCapsule_GetPointer(capsule, b"arrow_array_stream")
        if stream.release == NULL:
            raise TypeError("the Arrow stream was used up already")
        if stream.get_schema == NULL or stream.get_next == NULL or stream.get_last_error == NULL:
            raise CorruptArrowError("the Arrow stream lacks one of its functions")
        self.stream = stream[0]
        stream.release = NULL
        cdef int code
        with nogil:
            code = self.stream.get_schema(&self.stream, &self.schema)
        if code:
            self.schema.release = NULL
            raise self.stream_error(code)

    def take_array(self, schema_capsule, array_capsule):
        cdef ArrowSchema* schema
        cdef ArrowArray* array
        if not (PyCapsule_IsValid(schema_capsule, b"arrow_schema")
                and PyCapsule_IsValid(array_capsule, b"arrow_array")):
            raise TypeError("__arrow_c_array__ returned no capsules of an Arrow array")
        schema = <ArrowSchema*>PyCapsule_GetPointer(schema_capsule, b"arrow_schema")
        array = <ArrowArray*>PyCapsule_GetPointer(array_capsule, b"arrow_array")
        if schema.release == NULL or array.release == NULL:
            raise TypeError("the Arrow array was used up already")
        self.schema = schema[0]
        schema.release = NULL
        self.only = ArrowBatch.__new__(ArrowBatch)
        self.only.array = array[0]
        array.release = NULL

    def stream_error(self, int code):
        cdef const char* text = self.stream.get_last_error(&self.stream)
        told = f"errno {code}" if text == NULL else (<bytes>text).decode("utf-8", "replace")
        reason, _, _ = told.partition(" Detail: Python exception: Traceback")   # pyarrow appends the whole traceback
        return SerializationError(f"the Arrow stream failed: {excerpt(reason)}")

    cdef ArrowBatch next_batch(self):
        """The next batch, or None at the end; may be called in any thread, one call at a time."""
        cdef ArrowBatch batch
        cdef int code
        if self.stream.release == NULL:
            batch = self.only
            self.only = None
            return batch
        batch = ArrowBatch.__new__(ArrowBatch)
        with nogil:
            code = self.stream.get_next(&self.stream, &batch.array)
        if code:
            batch.array.release = NULL
            raise self.stream_error(code)
        return None if batch.array.release == NULL else batch


cdef bint has_nulls(ArrowArray* array) noexcept:
    """Whether a row of a struct array is null; its null count may be unknown."""
    cdef const uint8_t* validity
    cdef int64_t at = array.offset
    cdef int64_t end = at + array.length
    cdef uint64_t word
    if array.n_buffers != 1 or array.buffers == NULL or array.buffers[0] == NULL:
        return array.null_count > 0
    validity = <const uint8_t*>array.buffers[0]
    while at < end:     # in one step of the loop, so by words as far as possible
        if at & 7 == 0 and end - at >= 64:
            memcpy(&word, validity + (at >> 3), 8)
            if word != UINT64_MAX:
                return True
            at += 64
        elif not (validity[at >> 3] >> (at & 7)) & 1:
            return True
        else:
            at += 1
    return False
