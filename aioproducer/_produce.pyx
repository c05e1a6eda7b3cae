"""Produce requests and responses as bytes: the one API whose code is not generated from the schema.

A request is a list of buffers. Blocks of records of more than 4 KiB are referenced in place; smaller ones and the
fields around them (the request's and each batch's 61-byte header) are gathered in fresh buffers.

    v3-v8   old encodings; v7 is the first with zstd        v9      flexible (KIP-482)
    v10     leader hints in the answer (KIP-951)            v13     topic ids in place of names (KIP-516)

Answers are untrusted: every length is checked before it is used.
"""

import cython

from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
    _PyBytes_Resize,
)
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from aioproducer._buffer_pool cimport Buffer
from aioproducer._not_by_hand cimport aiop_not_by_hand
from aioproducer._prefetch cimport CACHE_LINE, aiop_prefetch
from aioproducer._producer_batch cimport PARTITION_BYTES, ProducerBatch, TopicQueues
from aioproducer._record_batch cimport HEADER_BYTES
from aioproducer._varint cimport (
    get_int16,
    get_int32,
    get_int64,
    get_uvarint,
    put_bytes,
    put_int16,
    put_int32,
    put_uvarint,
)

from aioproducer.errors import ProtocolError

cdef enum:
    API_KEY = 0
    FLEXIBLE = 9
    LEADER_HINTS = 10
    TOPIC_IDS = 13
    COPIED_BYTES = 4096     # a view, and a buffer more for the transport, cost more than this copy
    GATHERED_BYTES = 65536  # of a gathered buffer, unless more has to be in one piece
    MAX_VARINT = 10         # bytes
    MAX_LENGTH = 5          # bytes of the varint in which an answer states a length, count or tag
    PREFETCHED_BYTES = 1024
    FIXED_BYTES = 30        # upper bound of the fields around the topics, without the two ids

cdef int64_t MAX_OFFSET = 0x7FFFFFFF00000000    # of a batch: leaves room for those of its records


@cython.final
@cython.no_gc
cdef class FrameWriter:
    """A frame under construction: small parts are gathered into buffers, each cut off before a large part."""
    cdef list parts                 # for the transport
    cdef Py_ssize_t size            # their bytes
    cdef Py_ssize_t expected        # bytes of the whole frame, at most
    cdef bytes gathered             # written to until it is cut off
    cdef Py_ssize_t used            # bytes of it
    cdef Py_ssize_t capacity        # bytes

    def __cinit__(self, Py_ssize_t expected):
        self.parts = []
        self.expected = expected

    cdef unsigned char* room(self, Py_ssize_t size) except NULL:
        """Room for up to `size` bytes; end_at() tells how many were written."""
        if self.used + size > self.capacity:
            self.cut()
            self.capacity = max(size, min(self.expected - self.size, GATHERED_BYTES))
            self.gathered = PyBytes_FromStringAndSize(NULL, self.capacity)
        return <unsigned char*>PyBytes_AS_STRING(self.gathered) + self.used

    cdef void end_at(self, const unsigned char* end) noexcept:
        self.used = end - <unsigned char*>PyBytes_AS_STRING(self.gathered)

    cdef int cut(self) except -1:
        if self.used == 0:
            return 0
        if 2 * self.used >= self.capacity:
            self.hand_over()
        else:
            self.parts.append(PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.gathered), self.used))
        self.size += self.used
        self.used = 0
        return 0

    cdef int hand_over(self) except -1:
        """Part with the buffer itself, without the rest of its memory."""
        cdef PyObject* gathered = <PyObject*>self.gathered
        Py_INCREF(self.gathered)
        self.gathered = None
        self.capacity = 0
        _PyBytes_Resize(&gathered, self.used)   # it has one reference, as it must
        self.parts.append(<object>gathered)
        Py_DECREF(<object>gathered)
        return 0

    cdef int put_block(self, block, const char* data, Py_ssize_t size) except -1:
        """Records, as they lie in memory."""
        if size <= COPIED_BYTES:
            return self.put(data, size)
        self.cut()
        self.parts.append(block if PyBytes_CheckExact(block) else memoryview(block))
        self.size += size
        return 0

    cdef int put(self, const char* data, Py_ssize_t size) except -1:
        self.end_at(put_bytes(self.room(size), data, size))
        return 0

    cdef int put_raw(self, bytes data) except -1:
        return self.put(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))

    cdef int put_count(self, Py_ssize_t count, bint compact) except -1:
        cdef unsigned char* p = self.room(MAX_VARINT)
        self.end_at(put_uvarint(p, <uint64_t>(count + 1)) if compact else put_int32(p, <int32_t>count))
        return 0

    cdef int put_string(self, bytes text, bint compact) except -1:
        """A nullable string."""
        cdef Py_ssize_t size = -1 if text is None else PyBytes_GET_SIZE(text)
        cdef unsigned char* p = self.room(MAX_VARINT)
        self.end_at(put_uvarint(p, <uint64_t>(size + 1)) if compact else put_int16(p, <int16_t>size))
        if text is not None:
            self.put_raw(text)
        return 0

    cdef int put_no_tags(self, bint flexible) except -1:
        if flexible:
            self.put_raw(b"\0")
        return 0


cdef Py_ssize_t order_by_topic(list batches) except -1:
    """Group the batches by topic, in the order of first appearance; returns the number of topics."""
    cdef set topics = set()
    cdef Py_ssize_t turns = 0
    cdef TopicQueues topic = None
    for batch in batches:
        if (<ProducerBatch?>batch).queue.topic is not topic:
            topic = (<ProducerBatch>batch).queue.topic
            topics.add(topic)
            turns += 1
    cdef dict groups
    if turns > len(topics):
        groups = {}
        for batch in batches:
            groups.setdefault((<ProducerBatch>batch).queue.topic, []).append(batch)
        batches.clear()
        for group in groups.values():
            batches.extend(group)
    return len(topics)


cdef Py_ssize_t expected_bytes(list batches) noexcept:
    """What batches in the order of their topics take at most."""
    cdef Py_ssize_t size = 0
    cdef ProducerBatch batch
    cdef TopicQueues topic = None
    for item in batches:
        batch = <ProducerBatch>item
        if batch.queue.topic is not topic:
            topic = batch.queue.topic
            size += topic.frame_bytes
        size += PARTITION_BYTES + batch.wire_size()
    return size


cdef void prefetch_records(ProducerBatch batch) noexcept:
    """Have the CPU fetch the beginning of a batch; it goes on by itself where the next checksum has begun to read."""
    cdef Py_ssize_t at = 0
    if batch.head is not None:
        while at < min(batch.size_bytes, PREFETCHED_BYTES):     # with a C constant as its step, a range is an object
            aiop_prefetch(batch.head.data + at)
            at += CACHE_LINE


cdef int put_batch(FrameWriter writer, ProducerBatch batch, bint flexible) except -1:
    """One partition of the request."""
    cdef Py_ssize_t wire_bytes = batch.wire_size()
    cdef unsigned char* p = writer.room(PARTITION_BYTES + HEADER_BYTES)
    p = put_int32(p, batch.queue.partition)
    p = put_uvarint(p, <uint64_t>(wire_bytes + 1)) if flexible else put_int32(p, <int32_t>wire_bytes)
    batch.put_header(p, batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.transactional)
    writer.end_at(p + HEADER_BYTES)
    cdef Buffer buffer = batch.head
    if batch.compressed is not None:
        writer.put_block(batch.compressed, PyBytes_AS_STRING(batch.compressed), PyBytes_GET_SIZE(batch.compressed))
    while buffer is not None:
        writer.put_block(buffer, <const char*>buffer.data, buffer.used)
        buffer = buffer.next
    return writer.put_no_tags(flexible)


def encode_produce_request(int version, int32_t correlation_id, bytes client_id, bytes transactional_id, int acks,
                           int32_t timeout_ms, list batches not None):
    cdef bint flexible = version >= FLEXIBLE
    cdef Py_ssize_t topics = order_by_topic(batches)
    cdef FrameWriter writer = FrameWriter(fixed_bytes(client_id, transactional_id) + expected_bytes(batches))
    cdef TopicQueues topic
    cdef Py_ssize_t at = 0, end
    cdef unsigned char* p = writer.room(FIXED_BYTES)
    p = put_int32(p, 0)     # the size, filled in at the end
    p = put_int16(p, API_KEY)
    p = put_int16(p, <int16_t>version)
    writer.end_at(put_int32(p, correlation_id))
    writer.put_string(client_id, False)
    writer.put_no_tags(flexible)
    writer.put_string(transactional_id, flexible)
    p = writer.room(6)
    p = put_int16(p, <int16_t>acks)
    writer.end_at(put_int32(p, timeout_ms))
    writer.put_count(topics, flexible)
    while at < len(batches):
        topic = (<ProducerBatch>batches[at]).queue.topic
        end = at + 1
        while end < len(batches) and (<ProducerBatch>batches[end]).queue.topic is topic:
            end += 1
        if version >= TOPIC_IDS:
            writer.put_raw(topic.topic_id)
        else:
            writer.put_string(topic.name.encode(), flexible)
        writer.put_count(end - at, flexible)
        for at in range(at, end):
            if at + 1 < len(batches):
                prefetch_records(<ProducerBatch>batches[at + 1])
            put_batch(writer, <ProducerBatch>batches[at], flexible)
        at = end
        writer.put_no_tags(flexible)
    writer.put_no_tags(flexible)
    writer.cut()
    # Nobody has seen the first part yet, so it may still be changed.
    put_int32(<unsigned char*>PyBytes_AS_STRING(writer.parts[0]), <int32_t>(writer.size - 4))
    return writer.parts


def fixed_bytes(bytes client_id, bytes transactional_id):
    return FIXED_BYTES + len(client_id or b"") + len(transactional_id or b"")


def topic_names(list batches not None, int version):
    cdef list names = []
    cdef TopicQueues topic
    for batch in batches:
        topic = (<ProducerBatch?>batch).queue.topic
        names.append(topic.topic_id if version >= TOPIC_IDS else topic.name)
    return names


def all_have_topic_ids(list batches not None):
    for batch in batches:
        if not (<ProducerBatch?>batch).queue.topic.has_id:
            return False
    return True


def match_answers(list partitions not None, list batches not None, list names not None):
    cdef PartitionProduceResponse answer, first
    cdef Py_ssize_t i
    cdef bint in_order = len(partitions) == len(batches)
    for i in range(len(batches) if in_order else 0):
        answer = <PartitionProduceResponse?>partitions[i]
        if answer.partition != (<ProducerBatch?>batches[i]).queue.partition or answer.topic != names[i]:
            in_order = False
            break
    if in_order:
        return partitions
    found = {}
    for answer in partitions:
        first = <PartitionProduceResponse>found.setdefault((answer.topic, answer.partition), answer)
        if first.error_code != answer.error_code or first.base_offset != answer.base_offset:
            raise ProtocolError(f"a Produce answer tells of partition {answer.partition} of one topic in two ways")
    return [found[name, (<ProducerBatch?>batch).queue.partition] for name, batch in zip(names, batches)]


@cython.final
@cython.no_gc       # it holds only numbers and strings
@cython.freelist(1024)
cdef class PartitionProduceResponse:
    pass


@cython.final
cdef class ProduceResponse:
    pass


@cython.final
cdef class Reader:
    """A cursor over an answer; truncated or overlong data raises ProtocolError."""
    cdef const unsigned char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef bint flexible

    cdef const unsigned char* take(self, int64_t count) except NULL:
        if count < 0 or count > self.size - self.at:
            raise ProtocolError(f"a Produce answer needs {count} bytes at {self.at}, {self.size - self.at} are left")
        self.at += <Py_ssize_t>count
        return self.data + self.at - count

    cdef int16_t int16(self) except? -1:
        return get_int16(self.take(2))

    cdef int32_t int32(self) except? -1:
        return get_int32(self.take(4))

    cdef int64_t int64(self) except? -1:
        return get_int64(self.take(8))

    cdef int64_t uvarint(self) except? -1:
        cdef uint64_t value = 0
        cdef int used = get_uvarint(self.data + self.at, min(self.size - self.at, MAX_LENGTH), &value)
        if used == 0 or value > 0x7FFFFFFF:
            raise ProtocolError(f"a Produce answer has no varint of 31 bits at {self.at}")
        self.at += used
        return <int64_t>value

    cdef int64_t count(self) except? -1:
        """An array's length; each element takes at least a byte, so a count above the remaining bytes is refused."""
        cdef int64_t count = self.uvarint() - 1 if self.flexible else self.int32()
        if count < 0 or count > self.size - self.at:
            raise ProtocolError(f"a Produce answer claims {count} elements at {self.at}")
        return count

    cdef object string(self):
        text = self.nullable_string()
        if text is None:
            raise ProtocolError(f"a Produce answer has null for a text before {self.at}")
        return text

    cdef object nullable_string(self):
        cdef int64_t length = self.uvarint() - 1 if self.flexible else self.int16()
        if length == -1:
            return None
        cdef const unsigned char* text = self.take(length)
        try:
            return PyBytes_FromStringAndSize(<const char*>text, <Py_ssize_t>length).decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a Produce answer has text that is not UTF-8 before {self.at}") from error

    cdef int64_t tag(self, int64_t previous) except -1:
        """The number of the next tagged field; numbers ascend, so that none occurs twice."""
        cdef int64_t tag = self.uvarint()
        if tag <= previous:
            raise ProtocolError(f"tag {tag} follows tag {previous} in a Produce answer before {self.at}")
        return tag

    cdef int skip_tags(self) except -1:
        cdef int64_t _, tag = -1
        if self.flexible:
            for _ in range(self.uvarint()):
                tag = self.tag(tag)
                self.take(self.uvarint())
        return 0


def decode_produce_response(int version, bytes frame not None):
    cdef Reader reader = Reader.__new__(Reader)
    cdef ProduceResponse response = ProduceResponse()
    cdef int64_t _
    reader.data = <const unsigned char*>PyBytes_AS_STRING(frame)
    reader.size = PyBytes_GET_SIZE(frame)
    reader.flexible = version >= FLEXIBLE
    reader.int32()  # the correlation id, matched already
    reader.skip_tags()
    response.partitions = []
    response.node_endpoints = []
    for _ in range(reader.count()):
        if version >= TOPIC_IDS:
            topic = PyBytes_FromStringAndSize(<const char*>reader.take(16), 16)
        else:
            topic = reader.string()
        for _ in range(reader.count()):
            response.partitions.append(read_partition(reader, version, topic))
        reader.skip_tags()
    response.throttle_time_ms = reader.int32()
    if reader.flexible:
        read_endpoints(reader, version, response)
    return response


cdef PartitionProduceResponse read_partition(Reader reader, int version, topic):
    cdef PartitionProduceResponse partition = PartitionProduceResponse()
    cdef int64_t _, count, end, tag = -1
    partition.topic = topic
    partition.partition = reader.int32()
    partition.error_code = reader.int16()
    partition.base_offset = reader.int64()
    if partition.base_offset > MAX_OFFSET:
        raise ProtocolError(f"a Produce answer has offset {partition.base_offset}, and no room behind it")
    partition.log_append_time_ms = reader.int64()
    partition.log_start_offset = reader.int64() if version >= 5 else -1
    partition.leader_id = -1
    partition.leader_epoch = -1
    if version >= 8:
        count = reader.count()
        if count:       # seldom; a list an answer is work for the garbage collector
            partition.record_errors = []
        for _ in range(count):
            index = reader.int32()
            partition.record_errors.append((index, reader.nullable_string()))
            reader.skip_tags()
        partition.error_message = reader.nullable_string()
    if reader.flexible:
        for _ in range(reader.uvarint()):
            tag = reader.tag(tag)
            end = reader.uvarint()
            end += reader.at
            if tag == 0 and version >= LEADER_HINTS:
                partition.leader_id = reader.int32()
                partition.leader_epoch = reader.int32()
                reader.skip_tags()
            else:
                reader.take(end - reader.at)
            if reader.at != end:
                raise ProtocolError(f"tag {tag} of a Produce answer has a wrong size")
    return partition


cdef int read_endpoints(Reader reader, int version, ProduceResponse response) except -1:
    """The body's tagged fields; tag 0 has the addresses of the new leaders."""
    cdef int64_t _, end, tag = -1
    for _ in range(reader.uvarint()):
        tag = reader.tag(tag)
        end = reader.uvarint()
        end += reader.at
        if tag == 0 and version >= LEADER_HINTS:
            for _ in range(reader.count()):
                node_id = reader.int32()
                host = reader.string()
                port = reader.int32()
                rack = reader.nullable_string()
                reader.skip_tags()
                response.node_endpoints.append((node_id, host, port, rack))
        else:
            reader.take(end - reader.at)
        if reader.at != end:
            raise ProtocolError(f"tag {tag} of a Produce answer has a wrong size")
    return 0


aiop_not_by_hand(Reader)
