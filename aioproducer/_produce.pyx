"""Produce requests and responses as bytes: the one API whose path is not made from the schema.

A request is a list of buffers: the frame with the request header, then for each batch a fresh `bytes` (topic and
partition fields with the 61-byte batch header) followed by the batch's records as they lie in memory. Records of up to
4 KiB are copied, and so join their neighbours in one buffer.

    v3-v8   old encodings; v7 is the first with zstd        v9      flexible (KIP-482)
    v10     leader hints in the answer (KIP-951)            v13     topic ids in place of names (KIP-516)

Answers are untrusted: every length is checked before it is used.
"""

import cython

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from aioproducer._record_batch cimport HEADER_BYTES
from aioproducer._varint cimport get_int16, get_int32, get_int64, get_uvarint, put_int16, put_int32, put_uvarint

from aioproducer.errors import ProtocolError

cdef enum:
    API_KEY = 0
    FLEXIBLE = 9
    LEADER_HINTS = 10
    TOPIC_IDS = 13
    COPIED_BYTES = 4096     # a buffer by itself costs the transport and the system more than copying so much


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


cdef dict by_topic(list batches):
    """The batches of each topic, in order; brings `batches` into the order of the request, topic by topic."""
    cdef dict topics = {}
    cdef list group = None
    cdef Py_ssize_t turns = 0
    topic = None
    for batch in batches:
        if group is None or batch.topic is not topic:
            topic = batch.topic
            group = topics.setdefault(topic, [])
            turns += 1
        group.append(batch)
    if turns > len(topics):
        batches.clear()
        for group in topics.values():
            batches.extend(group)
    return topics


cdef bytes before_records(bytes lead, int32_t partition, Py_ssize_t wire_bytes, bytes batch_header, bint flexible):
    """What stands between the records of the batch before and those of this one."""
    cdef unsigned char scratch[16]
    cdef unsigned char* p = put_int32(scratch, partition)
    p = put_uvarint(p, <uint64_t>(wire_bytes + 1)) if flexible else put_int32(p, <int32_t>wire_bytes)
    cdef Py_ssize_t lead_size = PyBytes_GET_SIZE(lead)
    cdef Py_ssize_t fields_size = p - scratch
    cdef Py_ssize_t header_size = PyBytes_GET_SIZE(batch_header)
    cdef bytes whole = PyBytes_FromStringAndSize(NULL, lead_size + fields_size + header_size)
    cdef char* start = PyBytes_AS_STRING(whole)
    memcpy(start, PyBytes_AS_STRING(lead), lead_size)
    memcpy(start + lead_size, scratch, fields_size)
    memcpy(start + lead_size + fields_size, PyBytes_AS_STRING(batch_header), header_size)
    return whole


def encode_produce_request(int version, int32_t correlation_id, bytes client_id, bytes transactional_id, int acks,
                           int32_t timeout_ms, list batches not None):
    cdef bint flexible = version >= FLEXIBLE
    cdef dict topics = by_topic(batches)
    cdef list parts = []        # what goes to the transport
    cdef list joined = []       # what is too small to go by itself, until something large comes
    cdef list payload
    cdef bytes tags = b"\0" if flexible else b""
    cdef Py_ssize_t wire_bytes, size = 0
    cdef bytes lead = b"".join((
        int16(API_KEY), int16(version), int32(correlation_id), nullable_string(client_id, False), tags,
        nullable_string(transactional_id, flexible), int16(acks), int32(timeout_ms), array_count(len(topics), flexible),
    ))
    for topic, group in topics.items():
        lead += group[0].topic_id if version >= TOPIC_IDS else nullable_string(topic.encode(), flexible)
        lead += array_count(len(group), flexible)
        for batch in group:
            wire_bytes = batch.wire_bytes
            payload = batch.payload()
            lead = before_records(lead, batch.partition, wire_bytes, batch.header(payload), flexible)
            size += PyBytes_GET_SIZE(lead) + wire_bytes - HEADER_BYTES
            joined.append(lead)
            if wire_bytes - HEADER_BYTES > COPIED_BYTES:
                parts.append(b"".join(joined))
                parts.extend(payload)
                joined.clear()
            else:
                joined.extend(payload)
            lead = tags
        lead += tags
    lead += tags
    size += PyBytes_GET_SIZE(lead)
    joined.append(lead)
    parts.append(b"".join(joined))
    parts[0] = int32(size) + <bytes>parts[0]
    if not parts[len(parts) - 1]:
        parts.pop()
    return parts


def match_answers(list partitions not None, list batches not None, dict names not None):
    cdef list answers = partitions
    cdef bint in_order = len(partitions) == len(batches)
    cdef PartitionProduceResponse answer
    cdef Py_ssize_t i
    topic = name = None
    if in_order:
        for i in range(len(batches)):
            batch = batches[i]
            answer = <PartitionProduceResponse?>partitions[i]
            if i == 0 or batch.topic is not topic:
                topic = batch.topic
                name = names[topic]
            if answer.partition != batch.partition or (answer.topic is not name and answer.topic != name):
                in_order = False
                break
    if not in_order:
        found = {(one.topic, one.partition): one for one in partitions}
        answers = [found[names[batch.topic], batch.partition] for batch in batches]
    return answers


@cython.final
@cython.freelist(1024)
cdef class PartitionProduceResponse:
    pass


@cython.final
cdef class ProduceResponse:
    pass


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
