"""Record batch v2: append, seal, header, split."""

import cython

from libc.stdint cimport int16_t, int32_t, int64_t

from aioproducer._buffer_pool cimport Buffer, BufferPool

cdef enum:
    HEADER_BYTES = 61
    MAX_RECORD_OVERHEAD = 21


cdef struct RecordView:
    # One record to append. Pointers belong to the caller and live no longer than the call; a size of -1 means null.
    const char* key
    Py_ssize_t key_size
    const char* value
    Py_ssize_t value_size
    int64_t timestamp_ms
    Py_ssize_t headers_size     # encoded bytes of all headers, their count included
    const void* headers         # those bytes if already encoded, else NULL
    int32_t index               # in its batch, once it is appended: the batch may have more records by then


cdef inline Py_ssize_t largest_size(RecordView* record) noexcept:
    """Upper bound on the bytes of a batch's first record, without the batch's header.

    A later one may take a few more, as it stores how far its timestamp and offset are from the first one's.
    """
    return (MAX_RECORD_OVERHEAD + record.headers_size + (record.key_size if record.key_size > 0 else 0)
            + (record.value_size if record.value_size > 0 else 0))


cdef int fill_view(RecordView* record, bytes key, bytes value, list headers, int64_t timestamp_ms) except -1
cdef Py_ssize_t headers_size(list headers) except -1
cdef Py_ssize_t encode_headers(headers, unsigned char* start, Py_ssize_t capacity) noexcept


@cython.no_gc
cdef class RecordBatch:
    """The records of one batch, encoded as they arrive; base class of ProducerBatch, so that a batch is one object.

    Always  size_bytes = sum of the encoded records = sum of used over the buffers, until sealed.
            Nothing is appended once a view was given out; after seal_compressed() the buffers are back in the pool.
    """
    # First the fields that each record touches, here and in ProduceRequestResult: the fewer cache lines a partition
    # needs, the more partitions stay cached while records alternate between a thousand of them.
    cdef unsigned char* at                  # where the next record goes, in the last buffer,
    cdef unsigned char* end                 # and the end of that buffer
    cdef readonly int32_t record_count
    cdef readonly int attributes            # codec bits, set by seal
    cdef readonly Py_ssize_t size_bytes     # of the records section, uncompressed
    cdef readonly Py_ssize_t largest_record_bytes
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef Py_ssize_t limit_bytes             # maximum size as it goes out, if it has more than one record
    cdef BufferPool pool
    cdef Buffer head                        # the first of a chain of buffers
    cdef Buffer tail                        # the last, which takes records
    cdef readonly bytes compressed          # the records section as it goes out, if compressed
    cdef readonly Py_ssize_t memory_bytes   # charged to the pool

    cdef Py_ssize_t record_size(self, RecordView* record) noexcept
    cdef bint reserve(self, Py_ssize_t size, Py_ssize_t sharers) except -1
    cdef void settle(self) noexcept
    cdef int append(self, RecordView* record, list headers, Py_ssize_t record_size) except -1
    cdef Py_ssize_t wire_size(self) noexcept
    cdef int put_header(self, unsigned char* p, int64_t producer_id, int16_t epoch, int32_t base_sequence,
                        bint transactional) except -1
    cdef object checksum(self, crc)
    cpdef list payload(self)
    cdef list views(self)
    cpdef object contents(self)
    cdef int seal_compressed(self, bytes data, int codec_bits) except -1
    cdef void release(self)
    cdef void give_back_buffers(self)
