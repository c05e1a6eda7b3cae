"""ArrowFeed: admits the rows of one send_arrow, slice by slice."""

import cython

from libc.stdint cimport int32_t, int64_t

from aioproducer._admission cimport Admission
from aioproducer._arrow_columns cimport Column
from aioproducer._arrow_source cimport ArrowArray, ArrowBatch, ArrowSchema, ArrowSource
from aioproducer._producer_batch cimport ProducerBatch, TopicQueues
from aioproducer._record_batch cimport RecordView
from aioproducer._tally cimport Tally


cdef enum:
    SLOTS = 256


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
    cdef readonly frozenset names   # of all columns of the data
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
