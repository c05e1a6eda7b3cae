"""Record batch v2: append, seal, header, split.

Theory of operation. Records are encoded, uncompressed, straight into blocks of the pool, each record within one block.
The 61-byte header is not stored with the records but built for each attempt, so epoch and sequence can change while the
records, which a transport may still be reading, stay unchanged. The checksum covers the header from byte 21 and all
records; it is computed with the header, block by block.

Records alternate between many partitions, so a batch's write position has left the CPU cache by the time its next
record comes. Each append therefore prefetches the memory of the next one.

    0 baseOffset i64 | 8 batchLength i32 | 12 partitionLeaderEpoch i32 | 16 magic i8 | 17 crc u32 | 21 attributes i16
    23 lastOffsetDelta i32 | 27 baseTimestamp i64 | 35 maxTimestamp i64 | 43 producerId i64 | 51 producerEpoch i16
    53 baseSequence i32 | 57 recordsCount i32 | 61 records

Source: Kafka's message format, record batch with magic 2 (KIP-98).
"""

import cython

from crc32c import crc32c

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_CheckExact
from cpython.object cimport PyObject
from cpython.sequence cimport PySequence_Fast_GET_SIZE, PySequence_Fast_ITEMS
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_CheckExact

from aioproducer._prefetch cimport CACHE_LINE, aiop_prefetch_for_write
from aioproducer._varint cimport (
    get_varint,
    put_bytes,
    put_int16,
    put_int32,
    put_int64,
    put_varint,
    uint32_t,
    uvarint_size,
    varint_size,
    zigzag,
)

from aioproducer.errors import ProtocolError

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    bint PyUnicode_IS_ASCII(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    const void* PyUnicode_DATA(object text)

cdef enum:
    MAX_HEADER_OVERHEAD = 10    # bytes of a header's two lengths
    CHECKED_FROM = 21   # first byte the checksum covers
    LINES_AHEAD = 3     # prefetched beyond the one being written


cdef int fill_view(RecordView* record, bytes key, bytes value, list headers, int64_t timestamp_ms) except -1:
    """Point at a record's parts; valid as long as they are."""
    record.key = NULL if key is None else PyBytes_AS_STRING(key)
    record.key_size = -1 if key is None else PyBytes_GET_SIZE(key)
    record.value = NULL if value is None else PyBytes_AS_STRING(value)
    record.value_size = -1 if value is None else PyBytes_GET_SIZE(value)
    record.timestamp_ms = timestamp_ms
    record.headers_size = 1 if headers is None else headers_size(headers)
    record.headers = NULL
    return 0


cdef Py_ssize_t headers_size(list headers) except -1:
    """Encoded bytes of `headers`, a list of (str, bytes or None), with their count."""
    cdef Py_ssize_t total = varint_size(len(headers))
    cdef Py_ssize_t size = 0
    for key, value in headers:
        PyUnicode_AsUTF8AndSize(key, &size)
        total += varint_size(size) + size
        if value is None:
            total += 1
        else:
            size = PyBytes_GET_SIZE(value)
            total += varint_size(size) + size
    return total


cdef Py_ssize_t encode_headers(headers, unsigned char* start, Py_ssize_t capacity) noexcept:
    """Write headers with their count, and return the bytes they took; 0 leaves them to the general encoder.

    That is, unless they are exactly a list, tuple or dict of pairs of ASCII str and bytes or None, and fit into the
    room. Nothing is allocated here, so no user code runs that could change them meanwhile.
    """
    cdef unsigned char* end = start + capacity
    cdef unsigned char* p
    cdef PyObject* name
    cdef PyObject* value
    cdef PyObject** pairs
    cdef Py_ssize_t count
    cdef Py_ssize_t i
    cdef Py_ssize_t at = 0
    if PyDict_CheckExact(headers):
        p = put_varint(start, PyDict_Size(headers))
        while PyDict_Next(headers, &at, &name, &value):
            p = put_plain_header(p, end, <object>name, <object>value)
            if p == NULL:
                return 0
        return p - start
    if not PyList_CheckExact(headers) and not PyTuple_CheckExact(headers):
        return 0
    count = PySequence_Fast_GET_SIZE(headers)
    pairs = PySequence_Fast_ITEMS(headers)
    p = put_varint(start, count)
    for i in range(count):
        if not PyTuple_CheckExact(<object>pairs[i]) or PyTuple_GET_SIZE(<object>pairs[i]) != 2:
            return 0
        p = put_plain_header(
            p, end, <object>PyTuple_GET_ITEM(<object>pairs[i], 0), <object>PyTuple_GET_ITEM(<object>pairs[i], 1)
        )
        if p == NULL:
            return 0
    return p - start


cdef inline unsigned char* put_plain_header(unsigned char* p, unsigned char* end, name, value) noexcept:
    """Write one header; NULL if there is no room for it, or if it needs the general encoder."""
    cdef Py_ssize_t name_size
    cdef Py_ssize_t value_size = -1
    if not PyUnicode_CheckExact(name) or not PyUnicode_IS_ASCII(name):
        return NULL
    if value is not None:
        if not PyBytes_CheckExact(value):
            return NULL
        value_size = PyBytes_GET_SIZE(value)
    name_size = PyUnicode_GET_LENGTH(name)      # of ASCII these are also the bytes, and the str's own memory
    if name_size + value_size + MAX_HEADER_OVERHEAD > end - p:
        return NULL
    p = put_bytes(put_varint(p, name_size), PyUnicode_DATA(name), name_size)
    p = put_varint(p, value_size)
    return put_bytes(p, PyBytes_AS_STRING(value), value_size) if value_size > 0 else p


@cython.no_gc
cdef class RecordBatch:

    def __cinit__(self, BufferPool pool):
        self.pool = pool

    def __dealloc__(self):
        self.give_back_buffers()    # one by one: a nested free of thousands would need much stack

    cdef Py_ssize_t record_size(self, RecordView* record) noexcept:
        """Encoded bytes of `record` if it were appended next."""
        cdef int64_t delta = 0
        if self.record_count > 0:
            delta = record.timestamp_ms - self.base_timestamp_ms
        cdef Py_ssize_t size = 1 + varint_size(delta) + varint_size(self.record_count) + record.headers_size
        size += varint_size(record.key_size) + (record.key_size if record.key_size > 0 else 0)
        size += varint_size(record.value_size) + (record.value_size if record.value_size > 0 else 0)
        return varint_size(size) + size

    cdef bint reserve(self, Py_ssize_t size, Py_ssize_t sharers) except -1:
        """Make room for a record of `size` bytes; False, with nothing changed, if the pool has no memory.

        `sharers` batches may want more of it, this one included.
        """
        if size <= self.end - self.at:
            return True
        cdef Buffer buffer = self.pool.take(size, self.memory_bytes, sharers)
        if buffer is None:
            return False
        if self.tail is None:
            self.head = buffer
        else:
            self.settle()
            self.tail.next = buffer
        self.tail = buffer
        self.at = buffer.data
        self.end = buffer.data + buffer.capacity
        self.memory_bytes += buffer.capacity
        return True

    cdef void settle(self) noexcept:
        """Set `used` of the last buffer."""
        if self.tail is not None:
            self.tail.used = self.at - self.tail.data

    cdef int append(self, RecordView* record, list headers, Py_ssize_t record_size) except -1:
        """Write one record of `record_size` bytes; reserve() has promised the room."""
        if record_size > self.end - self.at:
            raise AssertionError(f"no room was reserved for a record of {record_size} bytes")
        if self.record_count == 0:
            self.base_timestamp_ms = record.timestamp_ms
            self.max_timestamp_ms = record.timestamp_ms
        elif record.timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = record.timestamp_ms
        cdef unsigned char* start = self.at
        cdef unsigned char* p = put_varint(start, record_size - uvarint_size_of_length(record_size))
        p[0] = 0  # attributes, unused
        p = put_varint(p + 1, record.timestamp_ms - self.base_timestamp_ms)
        p = put_varint(p, self.record_count)
        p = put_varint(p, record.key_size)
        if record.key_size > 0:
            p = put_bytes(p, record.key, record.key_size)
        p = put_varint(p, record.value_size)
        if record.value_size > 0:
            p = put_bytes(p, record.value, record.value_size)
        if record.headers != NULL:
            p = put_bytes(p, record.headers, record.headers_size)
        elif headers is None:
            p[0] = 0
            p += 1
        else:
            p = put_headers(p, headers)
        if p - start != record_size:
            raise AssertionError(f"record of {record_size} bytes was written with {p - start}")
        cdef int line
        for line in range(1, LINES_AHEAD + 1):
            aiop_prefetch_for_write(p + line * CACHE_LINE)
        self.at = p
        self.size_bytes += record_size
        self.record_count += 1
        if record_size > self.largest_record_bytes:
            self.largest_record_bytes = record_size
        return 0

    cdef Py_ssize_t wire_size(self) noexcept:
        """Bytes of the whole batch as it would go out now."""
        return HEADER_BYTES + (self.size_bytes if self.compressed is None else PyBytes_GET_SIZE(self.compressed))

    cdef int put_header(self, unsigned char* p, int64_t producer_id, int16_t epoch, int32_t base_sequence,
                        bint transactional) except -1:
        """Write the 61-byte header, with the checksum over header and records."""
        cdef unsigned char* checked = p + CHECKED_FROM
        cdef unsigned char* at = put_int16(checked, <int16_t>(self.attributes | (0x10 if transactional else 0)))
        at = put_int32(at, self.record_count - 1)
        at = put_int64(at, self.base_timestamp_ms)
        at = put_int64(at, self.max_timestamp_ms)
        at = put_int64(at, producer_id)
        at = put_int16(at, epoch)
        at = put_int32(at, base_sequence)
        put_int32(at, self.record_count)
        crc = crc32c(PyBytes_FromStringAndSize(<const char*>checked, HEADER_BYTES - CHECKED_FROM))
        at = put_int64(p, 0)
        at = put_int32(at, <int32_t>(self.wire_size() - 12))
        at = put_int32(at, -1)
        at[0] = 2
        put_int32(at + 1, <int32_t><uint32_t>self.checksum(crc))
        return 0

    cdef object checksum(self, crc):
        """`crc` continued over the records section."""
        if self.compressed is not None:
            return crc32c(self.compressed, crc)
        self.settle()
        cdef Buffer buffer = self.head
        while buffer is not None:
            crc = crc32c(buffer, crc)
            buffer = buffer.next
        return crc

    cpdef list payload(self):
        """The records section as buffers, in order; nothing is copied."""
        return self.views() if self.compressed is None else [self.compressed]

    cdef list views(self):
        cdef list views = []
        self.settle()
        cdef Buffer buffer = self.head
        while buffer is not None:
            if buffer.used:
                views.append(memoryview(buffer))
            buffer = buffer.next
        return views

    cpdef object contents(self):
        """The uncompressed records section as one bytes-like object; copied only if it lies in several blocks."""
        cdef list views = self.views()
        return views[0] if len(views) == 1 else b"".join(views)

    cdef int seal_compressed(self, bytes data, int codec_bits) except -1:
        """Replace the plain records by the compressed ones, and return their blocks to the pool."""
        self.compressed = data
        self.attributes = codec_bits
        self.give_back_buffers()
        return 0

    cdef void release(self):
        """Return the memory; the batch has no content after this."""
        self.compressed = None
        self.give_back_buffers()

    cdef void give_back_buffers(self):
        cdef Buffer buffer = self.head
        cdef Buffer next
        self.head = None
        self.tail = None
        self.at = NULL
        self.end = NULL
        self.memory_bytes = 0
        while buffer is not None:
            next = buffer.next
            buffer.next = None      # a view may keep this buffer alive, but not the rest
            self.pool.release(buffer)
            buffer = next


cdef unsigned char* put_headers(unsigned char* p, list headers) except NULL:
    cdef Py_ssize_t size = 0
    cdef const char* text
    p = put_varint(p, len(headers))
    for key, value in headers:
        text = PyUnicode_AsUTF8AndSize(key, &size)
        p = put_varint(p, size)
        p = put_bytes(p, text, size)
        size = -1 if value is None else PyBytes_GET_SIZE(value)
        p = put_varint(p, size)
        if size > 0:
            p = put_bytes(p, PyBytes_AS_STRING(value), size)
    return p


cdef inline Py_ssize_t uvarint_size_of_length(Py_ssize_t record_size) noexcept:
    """Bytes of a record's length prefix, given `record_size` of prefix and body together."""
    cdef Py_ssize_t prefix = 1
    while uvarint_size(zigzag(record_size - prefix)) > prefix:
        prefix += 1
    return prefix


def split_records(data, Py_ssize_t record_count):
    """Cut an uncompressed records section into (timestamp delta, key, value, headers) tuples, in order."""
    cdef const unsigned char[::1] view = data
    cdef Py_ssize_t size = view.shape[0]
    cdef const unsigned char* p = &view[0] if size else NULL
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t end
    cdef int64_t length = 0, delta = 0, ignored = 0, count = 0
    cdef list records = []
    for _ in range(record_count):
        at += varint_at(p, at, size, &length)
        if length < 1 or length > size - at:
            raise ProtocolError(f"record {len(records)} claims {length} bytes, {size - at} are left")
        end = at + <Py_ssize_t>length
        at += 1
        at += varint_at(p, at, end, &delta)
        at += varint_at(p, at, end, &ignored)
        key, at = blob_at(p, at, end)
        value, at = blob_at(p, at, end)
        at += varint_at(p, at, end, &count)
        headers = None
        if count > 0:
            headers = []
            for _ in range(count):
                name, at = blob_at(p, at, end)
                content, at = blob_at(p, at, end)
                headers.append((header_name(name), content))
        if at != end:
            raise ProtocolError(f"record {len(records)} claims {length} bytes, its fields say otherwise")
        records.append((delta, key, value, headers))
    if at != size:
        raise ProtocolError(f"{size - at} bytes follow the last of {record_count} records")
    return records


cdef str header_name(bytes name):
    if name is None:
        raise ProtocolError("a header has no name")
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("a header's name is not UTF-8") from error


cdef int varint_at(const unsigned char* p, Py_ssize_t at, Py_ssize_t size, int64_t* value) except -1:
    cdef int used = 0
    if at < size:
        used = get_varint(p + at, size - at, value)
    if used == 0:
        raise ProtocolError("records end inside a varint")
    return used


cdef tuple blob_at(const unsigned char* p, Py_ssize_t at, Py_ssize_t size):
    cdef int64_t length = 0
    at += varint_at(p, at, size, &length)
    if length < 0:
        return None, at
    if length > size - at:
        raise ProtocolError(f"a field claims {length} bytes, {size - at} are left")
    return PyBytes_FromStringAndSize(<const char*>p + at, <Py_ssize_t>length), at + <Py_ssize_t>length
