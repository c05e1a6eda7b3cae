"""Produce requests and responses as bytes: the one API whose path is not made from the schema.

A request is a list of buffers: the frame with the request header, then for each batch a fresh `bytes` (topic and
partition fields with the 61-byte batch header) followed by the batch's records as they lie in memory. Nothing is
joined.

    v3-v8   old encodings; v7 is the first with zstd        v9      flexible (KIP-482)
    v10     leader hints in the answer (KIP-951)            v13     topic ids in place of names (KIP-516)

Answers are untrusted: every length is checked before it is used.
"""

import cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from aioproducer._varint cimport get_int16, get_int32, get_int64, get_uvarint, put_int16, put_int32, put_uvarint

from aioproducer.errors import ProtocolError

cdef enum:
    API_KEY = 0
    FLEXIBLE = 9
    LEADER_HINTS = 10
    TOPIC_IDS = 13


cdef bytes int16(int value):
    cdef unsigned char scratch[2]
    put_int16(scratch, <int16_t>value)
    return PyBytes_FromStringAndSize(<const char*>scratch, 2)


cdef bytes int32(int64_t value):
    cdef unsigned char scratch[4]
    put_int32(scratch, <int32_t>value)
    return PyBytes_FromStringAndSize(<const char*>scratch, 4)


cdef bytes uvarint(uint64_t value):
    cdef unsigned char scratch[10]
    return PyBytes_FromStringAndSize(<const char*>scratch, put_uvarint(scratch, value) - scratch)


cdef bytes nullable_string(bytes text, bint compact):
    if text is None:
        return b"\0" if compact else b"\xff\xff"
    return (uvarint(len(text) + 1) if compact else int16(<int>len(text))) + text


cdef bytes array_count(Py_ssize_t count, bint compact):
    return uvarint(count + 1) if compact else int32(count)


def encode_produce_request(int version, int32_t correlation_id, bytes client_id, bytes transactional_id, int acks,
                           int32_t timeout_ms, list batches not None):
    cdef bint flexible = version >= FLEXIBLE
    cdef dict topics = {}
    cdef list parts = []
    cdef list payload
    cdef bytes tags = b"\0" if flexible else b""
    cdef Py_ssize_t size = 0
    for batch in batches:
        topics.setdefault(batch.topic, []).append(batch)
    cdef bytes lead = b"".join((
        int16(API_KEY), int16(version), int32(correlation_id), nullable_string(client_id, False), tags,
        nullable_string(transactional_id, flexible), int16(acks), int32(timeout_ms), array_count(len(topics), flexible),
    ))
    for topic, group in topics.items():
        if version >= TOPIC_IDS:
            lead += group[0].topic_id
        else:
            lead += nullable_string(topic.encode(), flexible)
        lead += array_count(len(group), flexible)
        for batch in group:
            payload = batch.payload()
            lead += int32(batch.partition) + array_count(batch.wire_bytes, flexible) + batch.header(payload)
            parts.append(lead)
            parts.extend(payload)
            size += PyBytes_GET_SIZE(lead) + batch.wire_bytes - 61
            lead = tags
        lead += tags
    lead += tags
    if lead:
        parts.append(lead)
        size += PyBytes_GET_SIZE(lead)
    parts[0] = int32(size) + <bytes>parts[0]
    return parts


@cython.final
cdef class PartitionProduceResponse:
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int16_t error_code
    cdef readonly int64_t base_offset
    cdef readonly int64_t log_append_time_ms
    cdef readonly int64_t log_start_offset
    cdef readonly list record_errors
    cdef readonly object error_message
    cdef readonly int32_t leader_id
    cdef readonly int32_t leader_epoch


@cython.final
cdef class ProduceResponse:
    cdef readonly list partitions
    cdef readonly int32_t throttle_time_ms
    cdef readonly list node_endpoints


@cython.final
cdef class Reader:
    """A cursor over an answer; whatever is cut short or too long raises ProtocolError."""
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
        cdef int used = get_uvarint(self.data + self.at, self.size - self.at, &value)
        if used == 0 or value > 0x7FFFFFFF:
            raise ProtocolError(f"a Produce answer has no varint of 31 bits at {self.at}")
        self.at += used
        return <int64_t>value

    cdef int64_t count(self) except? -1:
        """The length of an array; each element takes a byte or more, so a longer one is refused at once."""
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
        """The number of the next tagged field; they ascend, so that none is there twice."""
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
    cdef Reader reader = Reader()
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
    if reader.at != reader.size:
        raise ProtocolError(f"{reader.size - reader.at} bytes follow a Produce answer")
    return response


cdef PartitionProduceResponse read_partition(Reader reader, int version, topic):
    cdef PartitionProduceResponse partition = PartitionProduceResponse()
    cdef int64_t _, end, tag = -1
    partition.topic = topic
    partition.partition = reader.int32()
    partition.error_code = reader.int16()
    partition.base_offset = reader.int64()
    partition.log_append_time_ms = reader.int64()
    partition.log_start_offset = reader.int64() if version >= 5 else -1
    partition.leader_id = -1
    partition.leader_epoch = -1
    if version >= 8:
        partition.record_errors = []
        for _ in range(reader.count()):
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
    """The body's own tags; tag 0 tells where the new leaders of the hints are."""
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
