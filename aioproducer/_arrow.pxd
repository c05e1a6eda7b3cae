"""Arrow columns as records: what columns hold, and the feed of one send_arrow."""

import cython

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from aioproducer._admission cimport Admission
from aioproducer._arrow_source cimport ArrowArray, ArrowBatch, ArrowSchema, ArrowSource
from aioproducer._producer_batch cimport ProducerBatch, TopicQueues
from aioproducer._record_batch cimport RecordView
from aioproducer._tally cimport Tally


cdef enum:
    SLOTS = 256


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


cdef struct TopicSlot:
    # A topic looked up in this slice; the feed's `kept` owns the objects behind the pointers.
    const char* name
    Py_ssize_t size
    void* text          # str
    void* queues        # TopicQueues, or None


@cython.final
cdef class ArrowFeed:
    """Admits the rows of one send_arrow, slice by slice."""
    cdef Admission producer
    cdef Tally tally
    cdef ArrowSource source
    cdef Column key
    cdef Column value
    cdef Column headers
    cdef Column partition
    cdef Column timestamp
    cdef Column topic
    cdef list columns               # of (Column, child index)
    cdef object fetched             # deque of ArrowBatch
    cdef readonly bint exhausted    # the source has no more
    cdef bint awaited               # the loop waits for rows
    cdef bint unwanted              # the call is over
    cdef ArrowBatch batch           # the batch the columns are bound to
    cdef int64_t base               # row number of its first row
    cdef int64_t length
    cdef int64_t row                # the next row
    cdef readonly object error
    cdef object own_topic           # the call's topic, str or None
    cdef TopicQueues own_queues     # in this slice
    cdef object row_topic           # of the current row
    cdef TopicQueues row_queues
    cdef TopicSlot slots[SLOTS]
    cdef list kept
    cdef unsigned char* scratch     # encoded headers of the current row
    cdef Py_ssize_t scratch_size

    cdef void begin_slice(self)
    cdef bint open_batch(self) except -1
    cdef int admit_row(self) except -1
    cdef int find_topic(self, int64_t at) except -1
    cdef int look_up(self, TopicSlot* slot, const char* name, Py_ssize_t size) except -1
    cdef int64_t partition_at(self, int64_t at) except -2
    cdef int64_t timestamp_at(self, int64_t at) except -2
    cdef int encode_headers(self, int64_t at, RecordView* record) except -1
    cdef int write_header(self, Column column, int64_t at, Py_ssize_t* used, bint is_name) except -1
    cdef int make_room(self, Py_ssize_t size) except -1
