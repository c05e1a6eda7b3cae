"""Arrow columns: which types make which part of a record, and what a row holds."""

import cython

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from aioproducer._arrow_source cimport ArrowArray, ArrowSchema


cdef enum ColumnKind:
    NULLS           # nothing but nulls
    SMALL           # bytes with 32-bit offsets
    LARGE           # bytes with 64-bit offsets
    FIXED           # bytes of a fixed size
    VIEWS           # bytes with 16-byte views
    INTEGERS
    SMALL_LIST      # also maps
    LARGE_LIST
    FIXED_LIST
    SMALL_LIST_VIEW
    LARGE_LIST_VIEW


@cython.final
cdef class Column:
    """One column, and where the current batch has it.

    Owner   the ArrowBatch it is bound to; nothing is read before bind(), nor from an earlier batch after it.
    Always  a row is at offset + row of the buffers; what the buffers claim is checked when it is read.
    """
    cdef readonly str name          # as messages name it
    cdef readonly str type_name
    cdef readonly bint is_text
    cdef ColumnKind kind
    cdef int width                  # bytes of an integer or an index
    cdef bint signed
    cdef int64_t fixed_size         # of FIXED and FIXED_LIST
    cdef int64_t multiply           # from the unit of a timestamp to milliseconds
    cdef int64_t divide
    cdef Column dictionary          # set if the integers are indices into it
    cdef Column keys                # of headers: the names
    cdef Column values              # of headers
    cdef Column entries             # of headers: the structs that hold them
    cdef int64_t length
    cdef int64_t offset
    cdef const uint8_t* validity
    cdef const char* fixed          # offsets, views, integers, or the bytes of FIXED
    cdef const char* data           # bytes, or the sizes of list views
    cdef const void** variadic      # data buffers of views
    cdef int64_t variadic_count
    cdef const char* variadic_sizes

    cdef int bind(self, ArrowArray* array, int64_t length) except -1
    cdef int bind_children(self, ArrowArray* array) except -1
    cdef inline bint is_null(self, int64_t row) noexcept
    cdef int read_bytes(self, int64_t row, const char** data, Py_ssize_t* size) except -1
    cdef int read_view(self, int64_t at, const char** data, Py_ssize_t* size) except -1
    cdef bint read_integer(self, int64_t row, int64_t* value) except -1
    cdef int64_t integer_at(self, int64_t at) noexcept
    cdef int read_range(self, int64_t row, int64_t* first, int64_t* end) except -1
    cdef object object_at(self, int64_t row)


cdef str name_of(ArrowSchema* schema)
cdef Column bytes_column(ArrowSchema* schema, str name)
cdef Column integer_column(ArrowSchema* schema, str name)
cdef Column timestamp_column(ArrowSchema* schema, str name)
cdef Column headers_column(ArrowSchema* schema, str name)
