"""ArrowFeed: admits the rows of one send_arrow call, slice by slice.

Theory of operation. ArrowFeed binds its Columns to one batch of an ArrowSource after the other and reads row by row,
straight from the buffers into the record batch: no Python object per row, and none per column except for topics, which
are looked up once per slice. `run` appends for a millisecond or 256 KiB and the shell does the waiting; `fetch`, which
may take as long as a query, runs in a worker thread.

Data that contradicts itself ends the call (`_arrow_source` says what is trusted). A row that is well-formed but not a
valid record (partition -1, say) is refused alone.
"""

import cython

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport INT32_MAX, INT64_MAX
from libc.string cimport memcmp, memcpy, memset

from aioproducer._arrow_columns cimport bytes_column, headers_column, integer_column, name_of, timestamp_column
from aioproducer._arrow_source cimport has_nulls
from aioproducer._feed cimport BLOCKED, BROKEN, CLOSED, EMPTY, FED, TURN_DUE
from aioproducer._hashing cimport murmur2_raw
from aioproducer._varint cimport put_varint

from aioproducer._arrow_source import CorruptArrowError
from aioproducer.errors import KafkaError, RecordTooLargeError, SerializationError
from aioproducer.records import Record

cdef enum:
    STRIDE = 16             # rows between two clock reads
    FETCHED_ROWS = 8192     # a fetch collects at least this many, as each thread job costs about 50 us
    VARINT_BYTES = 10


@cython.final
cdef class ArrowFeed:

    def __cinit__(self, Admission producer not None, Tally tally not None, ArrowSource source not None, *, key, value,
                  headers, partition, timestamp, topic_column):
        cdef ArrowSchema* schema = &source.schema
        cdef dict places = {}
        cdef int64_t i
        self.producer = producer
        self.tally = tally
        self.source = source
        self.own_topic = tally.topic
        self.fetched = deque()
        self.columns = []
        self.kept = []
        wanted = {key, value, headers, partition, timestamp, topic_column}
        if schema.n_children < 0 or (schema.n_children and schema.children == NULL):
            raise CorruptArrowError(f"the Arrow data claims {schema.n_children} columns")
        for i in range(schema.n_children):
            name = name_of(schema.children[i])
            if name in places and name in wanted:
                raise SerializationError(f"there are two columns {name!r}")
            places[name] = i
        self.names = frozenset(places)
        names = ", ".join([repr(name) for name in places])
        if value not in places:
            raise SerializationError(f"there is no column {value!r}, for the records' values, only {names or 'none'}")
        if self.own_topic is None and topic_column not in places:
            raise SerializationError(f"no topic was given, and there is no column {topic_column!r}, only {names}")
        self.value = bytes_column(schema.children[<int64_t>places[value]], value)
        self.columns.append((self.value, places[value]))
        if key in places:
            self.key = bytes_column(schema.children[<int64_t>places[key]], key)
            self.columns.append((self.key, places[key]))
        if headers in places:
            self.headers = headers_column(schema.children[<int64_t>places[headers]], headers)
            self.columns.append((self.headers, places[headers]))
        if partition in places:
            self.partition = integer_column(schema.children[<int64_t>places[partition]], partition)
            self.columns.append((self.partition, places[partition]))
        if timestamp in places:
            self.timestamp = timestamp_column(schema.children[<int64_t>places[timestamp]], timestamp)
            self.columns.append((self.timestamp, places[timestamp]))
        if topic_column in places:
            self.topic = bytes_column(schema.children[<int64_t>places[topic_column]], topic_column)
            self.columns.append((self.topic, places[topic_column]))
        if source.stream.release == NULL:
            self.fetch()

    def __dealloc__(self):
        PyMem_Free(self.scratch)

    # --- batches ------------------------------------------------------------------------------------------------------

    def fetch(self, arrived=None):
        cdef ArrowBatch batch
        cdef int64_t rows = 0
        while rows < FETCHED_ROWS and not self.exhausted and not self.unwanted:
            if self.awaited and self.fetched:
                # Now, as the next batch may come in an hour. If none comes, the loop hears of the end of this call.
                self.awaited = False
                arrived()
            try:
                batch = self.source.next_batch()
            except Exception as error:
                self.error = error
                batch = None
            if batch is None:
                self.exhausted = True
            else:
                if batch.array.length != 0:
                    rows += batch.array.length
                    self.fetched.append(batch)
                self.exhausted = self.source.stream.release == NULL     # last, see has_ended

    def stop(self):
        self.unwanted = True

    def await_rows(self):
        self.awaited = True
        return not self.fetched and not self.exhausted

    @property
    def has_ended(self):
        # In this order: a thread that fetches appends its last batch first.
        return self.exhausted and not self.fetched

    cdef bint open_batch(self) except -1:
        """Bind the columns to the next fetched batch that has rows; False if there is none."""
        cdef ArrowArray* array
        cdef Column column
        cdef int64_t place
        while self.row >= self.length:
            if not self.fetched:
                self.batch = None
                return False
            self.length = self.row = 0
            self.batch = <ArrowBatch>self.fetched.popleft()
            array = &self.batch.array
            if (array.length < 0 or array.offset < 0 or array.offset > INT64_MAX - array.length
                    or array.n_children != self.source.schema.n_children or array.children == NULL):
                raise CorruptArrowError("a batch of the Arrow data lacks rows or columns that it should have")
            if array.null_count != 0 and has_nulls(array):
                raise SerializationError("the Arrow data has rows that are null as a whole, not column by column")
            for column, place in self.columns:
                column.bind(array.children[place], array.offset + array.length)
            self.base = array.offset
            self.length = array.length
        return True

    # --- slices -------------------------------------------------------------------------------------------------------

    cdef void begin_slice(self):
        """Discard lookups: they may be stale after a turn of the loop."""
        memset(self.slots, 0, sizeof(self.slots))
        self.kept = []
        self.own_queues = None if self.own_topic is None else self.producer.accumulator.find_topic(self.own_topic)

    def run(self):
        cdef Admission producer = self.producer
        cdef int until_look = 0
        try:
            self.begin_slice()
            while True:
                if self.row >= self.length and not self.open_batch():
                    if not self.has_ended:
                        return EMPTY
                    return FED if self.error is None else BROKEN
                if not producer.admits():
                    return CLOSED
                if until_look == 0:
                    producer.look()
                    until_look = STRIDE
                until_look -= 1
                if producer.turn_due():
                    return TURN_DUE
                if not self.admit_row():
                    return BLOCKED
        except SerializationError as error:
            self.error = error
            return BROKEN

    cdef int admit_row(self) except -1:
        """Append the current row, or refuse it; 0 if it has to wait."""
        cdef RecordView record
        cdef ProducerBatch batch = None
        cdef Admission producer = self.producer
        cdef int64_t at = self.base + self.row
        cdef int64_t partition = -1
        try:
            self.find_topic(at)
            record.key = NULL
            record.key_size = -1
            if self.key is not None:
                self.key.read_bytes(at, &record.key, &record.key_size)
            self.value.read_bytes(at, &record.value, &record.value_size)
            if self.partition is not None:
                partition = self.partition_at(at)
            record.timestamp_ms = -1 if self.timestamp is None else self.timestamp_at(at)
            if record.timestamp_ms < 0:
                record.timestamp_ms = producer.wall_ms()
            record.headers = NULL
            record.headers_size = 1
            if self.headers is not None:
                self.encode_headers(at, &record)
            if self.row_queues is None or partition >= self.row_queues.partition_count:
                return 0
            if self.row_queues.partition_count == 0:
                return 0
            batch = producer.place(self.row_topic, self.row_queues, <int32_t>partition, &record, None, False)
        except CorruptArrowError:
            raise
        except KafkaError as error:
            self.refuse(error)
            return 1
        if batch is None:
            return 0
        batch.result.assign(record.index, self.tally)
        self.row += 1
        return 1

    cdef int find_topic(self, int64_t at) except -1:
        """Look up the row's topic; the call's topic if it is null."""
        cdef const char* name
        cdef Py_ssize_t size = -1
        cdef TopicSlot* slot
        if self.topic is not None:
            self.topic.read_bytes(at, &name, &size)
        if size < 0:
            if self.own_topic is None:
                raise SerializationError(f"column {self.topic.name!r} is null, and no topic was given to the call")
            self.row_topic = self.own_topic
            self.row_queues = self.own_queues
            return 0
        slot = &self.slots[murmur2_raw(<const unsigned char*>name, size) % SLOTS]
        if slot.text == NULL or slot.size != size or memcmp(slot.name, name, size):
            self.look_up(slot, name, size)
        self.row_topic = <object>slot.text
        self.row_queues = <TopicQueues>slot.queues
        return 0

    cdef int look_up(self, TopicSlot* slot, const char* name, Py_ssize_t size) except -1:
        cdef bytes copied = PyBytes_FromStringAndSize(name, size)
        try:
            text = copied.decode()
        except UnicodeDecodeError:
            raise SerializationError(f"column {self.topic.name!r} names a topic that is not UTF-8") from None
        queues = self.producer.accumulator.find_topic(text)
        self.kept.append((copied, text, queues))
        slot.name = PyBytes_AS_STRING(copied)
        slot.size = size
        slot.text = <void*>text
        slot.queues = <void*>queues
        return 0

    cdef int64_t partition_at(self, int64_t at) except -2:
        """The row's partition; -1 for null."""
        cdef int64_t partition = -1
        if self.partition.read_integer(at, &partition) and not 0 <= partition <= INT32_MAX:
            raise SerializationError(
                f"column {self.partition.name!r}: partition {partition} of a record for topic {self.row_topic!r} "
                "is outside 0 to 2147483647"
            )
        return partition

    cdef int64_t timestamp_at(self, int64_t at) except -2:
        """The row's time in milliseconds; -1 for null."""
        cdef int64_t time = -1
        if not self.timestamp.read_integer(at, &time):
            return -1
        if time < 0 or time > INT64_MAX // self.timestamp.multiply:
            raise SerializationError(
                f"column {self.timestamp.name!r}: a {self.timestamp.type_name} of {time} is outside 0 to 2^63-1 "
                "milliseconds since the epoch"
            )
        return time * self.timestamp.multiply // self.timestamp.divide

    # --- headers ------------------------------------------------------------------------------------------------------

    cdef int encode_headers(self, int64_t at, RecordView* record) except -1:
        """Encode the row's headers, in record format, into the scratch memory."""
        cdef int64_t entry = 0
        cdef int64_t end = 0
        cdef Py_ssize_t used
        self.headers.read_range(at, &entry, &end)
        if entry == end:
            return 0
        self.make_room(VARINT_BYTES)
        used = put_varint(self.scratch, end - entry) - self.scratch
        while entry < end:
            if self.headers.entries.is_null(entry):
                raise SerializationError(f"column {self.headers.name!r}: a header of a record is null")
            self.write_header(self.headers.keys, self.headers.entries.offset + entry, &used, True)
            self.write_header(self.headers.values, self.headers.entries.offset + entry, &used, False)
            entry += 1
            if used > self.producer.max_record_bytes:
                break       # the record is already too large, so stop encoding
        record.headers = self.scratch
        record.headers_size = used
        return 0

    cdef int write_header(self, Column column, int64_t at, Py_ssize_t* used, bint is_name) except -1:
        cdef const char* data
        cdef Py_ssize_t size
        column.read_bytes(at, &data, &size)
        if size > self.producer.max_record_bytes:
            raise RecordTooLargeError(
                f"column {self.headers.name!r}: a header of a record for topic {self.row_topic!r} takes {size:,} "
                f"bytes, the limit of a record is {self.producer.max_record_bytes:,} "
                "(the smaller of max_request_size and buffer_memory)"
            )
        if is_name:
            if size < 0:
                raise SerializationError(f"column {self.headers.name!r}: a header of a record has no name")
            if not is_ascii(data, size):
                try:
                    data[:size].decode("utf-8")
                except UnicodeDecodeError:
                    raise SerializationError(f"column {self.headers.name!r}: a header name is not UTF-8") from None
        self.make_room(used[0] + VARINT_BYTES + max(size, 0))
        used[0] = put_varint(self.scratch + used[0], size) - self.scratch
        if size > 0:
            memcpy(self.scratch + used[0], data, size)
            used[0] += size
        return 0

    cdef int make_room(self, Py_ssize_t size) except -1:
        cdef unsigned char* scratch
        if size > self.scratch_size:
            size = max(size, 2 * self.scratch_size, 256)
            scratch = <unsigned char*>PyMem_Realloc(self.scratch, size)
            if scratch == NULL:
                raise MemoryError()
            self.scratch = scratch
            self.scratch_size = size
        return 0

    # --- the waiting row ----------------------------------------------------------------------------------------------

    @property
    def holds_record(self):
        return self.row < self.length

    @property
    def wanted(self):
        cdef int64_t at = self.base + self.row
        cdef int64_t partition = -1
        self.find_topic(at)
        if self.partition is not None:
            partition = self.partition_at(at)
        return self.row_topic, (None if partition < 0 else partition)

    def try_now(self):
        cdef bint queueing = self.producer.queueing
        self.producer.queueing = False
        try:
            self.producer.look()
            self.begin_slice()
            return self.admit_row() == 1
        finally:
            self.producer.queueing = queueing

    def refuse(self, error):
        try:
            self.find_topic(self.base + self.row)
            self.tally.refuse(error, self.row_topic)
        except KafkaError:      # there is none, which may be the error itself
            self.tally.refuse(error)
        self.row += 1

    # --- rows as Python objects ---------------------------------------------------------------------------------------

    def next_record(self):
        """The next row as a Record for user code, or the row's error; None if no row is here."""
        cdef int64_t at
        cdef int64_t partition = -1
        cdef int64_t timestamp_ms = -1
        self.begin_slice()
        if not self.open_batch():
            if self.has_ended and self.error is not None:
                raise self.error
            return None
        at = self.base + self.row
        self.row += 1
        self.row_topic = None
        try:
            self.find_topic(at)
            if self.partition is not None:
                partition = self.partition_at(at)
            if self.timestamp is not None:
                timestamp_ms = self.timestamp_at(at)
            return Record(
                self.value.object_at(at),
                None if self.key is None else self.key.object_at(at),
                topic=self.row_topic,
                partition=None if partition < 0 else partition,
                headers=None if self.headers is None else self.header_list(at),
                timestamp_ms=None if timestamp_ms < 0 else timestamp_ms,
            )
        except CorruptArrowError:
            raise
        except KafkaError as error:
            error._is_about(self.row_topic)
            return error

    def header_list(self, int64_t at):
        cdef int64_t entry = 0
        cdef int64_t end = 0
        cdef list pairs = []
        self.headers.read_range(at, &entry, &end)
        while entry < end:
            if self.headers.entries.is_null(entry):
                raise SerializationError(f"column {self.headers.name!r}: a header of a record is null")
            name = self.headers.keys.object_at(self.headers.entries.offset + entry)
            if name is None:
                raise SerializationError(f"column {self.headers.name!r}: a header of a record has no name")
            if isinstance(name, bytes):
                try:
                    name = name.decode()
                except UnicodeDecodeError:
                    raise SerializationError(f"column {self.headers.name!r}: a header name is not UTF-8") from None
            value = self.headers.values.object_at(self.headers.entries.offset + entry)
            pairs.append((name, value.encode() if isinstance(value, str) else value))
            entry += 1
        return pairs


cdef bint is_ascii(const char* data, Py_ssize_t size) noexcept:
    cdef unsigned char bits = 0
    cdef Py_ssize_t i
    for i in range(size):
        bits |= <unsigned char>data[i]
    return bits < 0x80
