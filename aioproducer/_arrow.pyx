"""Arrow columns as records: what columns hold, and the feed of one send_arrow call.

Theory of operation. ArrowFeed binds its Columns to one batch of an ArrowSource after the other and reads row by row,
straight from the buffers into the record batch: no Python object per row, and none per column except for topics, which
are looked up once per slice. `run` appends for a millisecond or 256 KiB and the shell does the waiting; `fetch`, which
may take as long as a query, runs in a worker thread.

What is trusted: see `_arrow_source`. A row that is well-formed but not a valid record (partition -1, say) is refused
alone.

Source: the Arrow columnar format.
"""

import cython

from collections import deque

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdint cimport int8_t, int16_t, uint16_t
from libc.string cimport memcmp, memcpy, memset

from aioproducer._arrow_source cimport has_nulls
from aioproducer._feed cimport BLOCKED, BROKEN, CLOSED, EMPTY, FED, TURN_DUE
from aioproducer._hashing cimport murmur2_raw
from aioproducer._varint cimport put_varint

from aioproducer._arrow_source import CorruptArrowError
from aioproducer.errors import KafkaError, RecordTooLargeError, SerializationError
from aioproducer.records import Record

cdef extern from *:
    """
    #include <stdint.h>
    """
    const int64_t INT64_MAX
    const int32_t INT32_MAX

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* data, Py_ssize_t size, const char* errors)

cdef enum:
    STRIDE = 16             # rows between two clock reads
    FETCHED_ROWS = 8192     # a fetch collects at least this many, as each thread job costs about 50 us
    VARINT_BYTES = 10

cdef const char* NOTHING = ""

cdef dict TYPE_NAMES = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "e": "halffloat", "f": "float", "g": "double", "z": "binary", "Z": "large_binary",
    "vz": "binary_view", "u": "string", "U": "large_string", "vu": "string_view", "tdD": "date32", "tdm": "date64",
    "+l": "list", "+L": "large_list", "+vl": "list_view", "+vL": "large_list_view", "+s": "struct", "+m": "map",
    "+r": "run_end_encoded",
}
cdef dict INTEGER_WIDTHS = {"c": 1, "C": 1, "s": 2, "S": 2, "i": 4, "I": 4, "l": 8, "L": 8}
cdef dict BYTES_KINDS = {"z": SMALL, "u": SMALL, "Z": LARGE, "U": LARGE, "vz": VIEWS, "vu": VIEWS, "n": NULLS}
cdef dict LIST_KINDS = {
    "+l": SMALL_LIST, "+m": SMALL_LIST, "+L": LARGE_LIST, "+vl": SMALL_LIST_VIEW, "+vL": LARGE_LIST_VIEW,
}
cdef dict TIMESTAMP_UNITS = {"tss:": (1000, 1), "tsm:": (1, 1), "tsu:": (1, 1000), "tsn:": (1, 1000000)}


# --- columns ----------------------------------------------------------------------------------------------------------


cdef str format_of(ArrowSchema* schema):
    if schema.release == NULL:
        raise CorruptArrowError("the type of an Arrow column was released already")
    if schema.format == NULL:
        raise CorruptArrowError("an Arrow column has no type")
    return (<bytes>schema.format).decode("utf-8", "replace")


cdef str type_of(ArrowSchema* schema):
    """The type's usual name."""
    cdef str text = format_of(schema)
    if schema.dictionary != NULL:
        if schema.dictionary.dictionary != NULL:    # further levels may even form a ring
            return "dictionary of dictionary"
        return f"dictionary of {type_of(schema.dictionary)}"
    if text.startswith("w:"):
        return f"fixed_size_binary[{text[2:]}]"
    if text[:4] in TIMESTAMP_UNITS:
        return "timestamp[s]" if text[2] == "s" else f"timestamp[{text[2]}s]"
    if text.startswith("+w:"):
        return "fixed_size_list"
    return TYPE_NAMES.get(text, f"of Arrow format {text!r}")


cdef str name_of(ArrowSchema* schema):
    if schema == NULL:
        raise CorruptArrowError("a column of the Arrow data has no schema")
    if schema.release == NULL:
        raise CorruptArrowError("the Arrow data has a column whose type was released already")
    return "" if schema.name == NULL else (<bytes>schema.name).decode("utf-8", "replace")


cdef Column new_column(ArrowSchema* schema, str name):
    cdef Column column = Column.__new__(Column)
    column.name = name
    column.type_name = type_of(schema)
    return column


cdef object wrong_type(Column column, str wanted):
    return SerializationError(f"column {column.name!r} is {column.type_name}; {wanted} is needed")


cdef int64_t number_in(str text) except -1:
    """The size that a format gives after its colon."""
    digits = text.partition(":")[2]
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10 or int(digits) > INT32_MAX:
        raise CorruptArrowError(f"the Arrow format {text!r} names no size")
    return int(digits)


cdef Column bytes_column(ArrowSchema* schema, str name):
    """A column of bytes or text in any layout, null and dictionary-encoded included."""
    cdef Column column = new_column(schema, name)
    cdef str text = format_of(schema)
    if schema.dictionary != NULL and text in INTEGER_WIDTHS:
        column.kind = INTEGERS
        column.width = INTEGER_WIDTHS[text]
        column.signed = text.islower()
        if schema.dictionary.dictionary != NULL:
            raise wrong_type(column, "a dictionary of binary or string")
        column.dictionary = bytes_column(schema.dictionary, name)
        column.is_text = column.dictionary.is_text
    elif text in BYTES_KINDS:
        column.kind = BYTES_KINDS[text]
        column.is_text = text in ("u", "U", "vu")
    elif text.startswith("w:"):
        column.kind = FIXED
        column.fixed_size = number_in(text)
    else:
        raise wrong_type(column, "binary, string, one of their large or view forms, or fixed_size_binary")
    return column


cdef Column integer_column(ArrowSchema* schema, str name):
    cdef Column column = new_column(schema, name)
    cdef str text = format_of(schema)
    if text == "n":
        column.kind = NULLS
    elif schema.dictionary == NULL and text in INTEGER_WIDTHS:
        column.kind = INTEGERS
        column.width = INTEGER_WIDTHS[text]
        column.signed = text.islower()
    else:
        raise wrong_type(column, "an integer")
    column.multiply = column.divide = 1
    return column


cdef Column timestamp_column(ArrowSchema* schema, str name):
    cdef Column column
    cdef str text = format_of(schema)
    if schema.dictionary == NULL and text[:4] in TIMESTAMP_UNITS:
        column = new_column(schema, name)
        column.kind = INTEGERS
        column.width = 8
        column.signed = True
        column.multiply, column.divide = TIMESTAMP_UNITS[text[:4]]
        return column
    try:
        return integer_column(schema, name)
    except CorruptArrowError:
        raise
    except SerializationError:
        raise wrong_type(new_column(schema, name), "a timestamp, or integers (milliseconds)") from None


cdef Column headers_column(ArrowSchema* schema, str name):
    cdef Column column = new_column(schema, name)
    cdef str text = format_of(schema)
    cdef ArrowSchema* entry
    if text == "n":
        column.kind = NULLS
        return column
    wanted = "a list or map of struct<key: string, value: binary>"
    if schema.dictionary != NULL:
        raise wrong_type(column, wanted)
    if text in LIST_KINDS:
        column.kind = LIST_KINDS[text]
    elif text.startswith("+w:"):
        column.kind = FIXED_LIST
        column.fixed_size = number_in(text)
    else:
        raise wrong_type(column, wanted)
    if schema.n_children != 1 or schema.children == NULL or schema.children[0] == NULL:
        raise CorruptArrowError(f"column {name!r} is {column.type_name} and does not have exactly one child")
    entry = schema.children[0]
    column.entries = new_column(entry, f"{name} element")
    if format_of(entry) != "+s" or entry.n_children != 2 or entry.children == NULL:
        raise wrong_type(column.entries, "struct<key: string, value: binary>")
    names = [name_of(entry.children[0]), name_of(entry.children[1])]
    if names != ["key", "value"] and text != "+m":
        raise wrong_type(column.entries, "struct<key: string, value: binary>")
    column.keys = bytes_column(entry.children[0], f"{name} key")
    column.values = bytes_column(entry.children[1], f"{name} value")
    return column


@cython.final
cdef class Column:

    cdef int bind(self, ArrowArray* array, int64_t length) except -1:
        """Read from an array of at least `length` rows from now on."""
        cdef int64_t buffers
        if array == NULL or array.length < length or array.offset < 0 or array.offset > INT64_MAX - array.length:
            raise CorruptArrowError(f"column {self.name!r} lacks the {length} rows that it should have")
        if array.release == NULL:
            raise CorruptArrowError(f"column {self.name!r} was released already")
        self.length = array.length
        self.offset = array.offset
        self.validity = NULL
        if self.kind == NULLS:
            return 0
        if self.kind == SMALL or self.kind == LARGE or self.kind == SMALL_LIST_VIEW or self.kind == LARGE_LIST_VIEW:
            buffers = 3
        elif self.kind == VIEWS:
            buffers = max(3, array.n_buffers)
        else:
            buffers = 1 if self.kind == FIXED_LIST else 2
        if array.n_buffers != buffers or array.buffers == NULL:
            raise CorruptArrowError(f"column {self.name!r} is {self.type_name} and has {array.n_buffers} buffers")
        if array.null_count != 0:
            self.validity = <const uint8_t*>array.buffers[0]
            if self.validity == NULL and array.null_count > 0:
                raise CorruptArrowError(f"column {self.name!r} has nulls and does not say where")
        if buffers > 1:
            self.fixed = <const char*>array.buffers[1]
            if self.fixed == NULL and array.length > 0 and not (self.kind == FIXED and self.fixed_size == 0):
                raise CorruptArrowError(f"column {self.name!r} has rows and no buffer for them")
        if self.kind == VIEWS:
            self.variadic_count = buffers - 3
            self.variadic = array.buffers + 2
            self.variadic_sizes = <const char*>array.buffers[buffers - 1]
            if self.variadic_count and self.variadic_sizes == NULL:
                raise CorruptArrowError(f"column {self.name!r} does not say how large its buffers are")
        elif buffers == 3:
            self.data = <const char*>array.buffers[2]
        return self.bind_children(array)

    cdef int bind_children(self, ArrowArray* array) except -1:
        cdef ArrowArray* entries
        if self.dictionary is not None:
            self.dictionary.bind(array.dictionary, 0)
        if self.entries is not None:
            entries = array.children[0] if array.n_children == 1 and array.children != NULL else NULL
            if entries == NULL or entries.n_children != 2 or entries.children == NULL or entries.n_buffers != 1:
                raise CorruptArrowError(f"column {self.name!r} is {self.type_name} and lacks the children of one")
            self.entries.kind = FIXED_LIST      # a struct has only a validity buffer, like this kind
            self.entries.bind(entries, 0)
            self.keys.bind(entries.children[0], self.entries.length + self.entries.offset)
            self.values.bind(entries.children[1], self.entries.length + self.entries.offset)
        return 0

    cdef inline bint is_null(self, int64_t row) noexcept:
        cdef int64_t at = self.offset + row
        return self.validity != NULL and not (self.validity[at >> 3] >> (at & 7)) & 1

    cdef int read_bytes(self, int64_t row, const char** data, Py_ssize_t* size) except -1:
        """Point at the bytes of a row; size -1 for null."""
        cdef int64_t at = self.offset + row
        cdef int64_t first, end
        cdef int32_t small[2]
        cdef int64_t large[2]
        data[0] = NULL
        size[0] = -1
        if self.kind == NULLS or self.is_null(row):
            return 0
        if self.kind == SMALL:
            memcpy(small, self.fixed + 4 * at, 8)
            first = small[0]
            end = small[1]
        elif self.kind == LARGE:
            memcpy(large, self.fixed + 8 * at, 16)
            first = large[0]
            end = large[1]
        elif self.kind == VIEWS:
            return self.read_view(at, data, size)
        elif self.kind == FIXED:
            data[0] = self.fixed + self.fixed_size * at if self.fixed_size else NOTHING
            size[0] = <Py_ssize_t>self.fixed_size
            return 0
        else:
            first = self.integer_at(at)
            if first < 0 or first >= self.dictionary.length:
                raise CorruptArrowError(f"column {self.name!r}, row {row}: index {first} is outside its dictionary")
            return self.dictionary.read_bytes(first, data, size)
        if first < 0 or end < first or (end > first and self.data == NULL):
            raise CorruptArrowError(f"column {self.name!r}, row {row}: bytes {first} to {end} are invalid")
        if end - first > INT32_MAX:
            raise RecordTooLargeError(f"column {self.name!r}: a row of {end - first:,} bytes, which no record can have")
        data[0] = self.data + first if end > first else NOTHING
        size[0] = <Py_ssize_t>(end - first)
        return 0

    cdef int read_view(self, int64_t at, const char** data, Py_ssize_t* size) except -1:
        cdef const char* view = self.fixed + 16 * at
        cdef int32_t fields[4]      # size, prefix, buffer, offset
        cdef int64_t limit = 0
        memcpy(fields, view, 16)
        if fields[0] < 0:
            raise CorruptArrowError(f"column {self.name!r}: a view of {fields[0]} bytes")
        if fields[0] <= 12:
            data[0] = view + 4
        else:
            if 0 <= fields[2] < self.variadic_count and self.variadic[fields[2]] != NULL:
                memcpy(&limit, self.variadic_sizes + 8 * fields[2], 8)
            if fields[3] < 0 or <int64_t>fields[3] + fields[0] > limit:
                raise CorruptArrowError(f"column {self.name!r}: a view lies outside of its buffer")
            data[0] = <const char*>self.variadic[fields[2]] + fields[3]
        size[0] = fields[0]
        return 0

    cdef bint read_integer(self, int64_t row, int64_t* value) except -1:
        """Read a row's number, at most 2^63-1; False for null."""
        if self.kind == NULLS or self.is_null(row):
            return False
        value[0] = self.integer_at(self.offset + row)
        if value[0] < 0 and not self.signed:
            raise SerializationError(
                f"column {self.name!r}: a {self.type_name} of {<uint64_t>value[0]} is outside 0 to 2^63-1"
            )
        return True

    cdef int64_t integer_at(self, int64_t at) noexcept:
        """The number there; negative for an unsigned one above 2^63-1."""
        cdef int8_t i8
        cdef int16_t i16
        cdef int32_t i32
        cdef int64_t i64
        cdef const char* place = self.fixed + self.width * at
        if self.width == 1:
            memcpy(&i8, place, 1)
            return <int64_t>i8 if self.signed else <int64_t><uint8_t>i8
        if self.width == 2:
            memcpy(&i16, place, 2)
            return <int64_t>i16 if self.signed else <int64_t><uint16_t>i16
        if self.width == 4:
            memcpy(&i32, place, 4)
            return <int64_t>i32 if self.signed else <int64_t><uint32_t>i32
        memcpy(&i64, place, 8)
        return i64

    cdef int read_range(self, int64_t row, int64_t* first, int64_t* end) except -1:
        """The range of a row's list entries; empty for null."""
        cdef int64_t at = self.offset + row
        cdef int32_t small[2]
        cdef int64_t large[2]
        first[0] = end[0] = 0
        if self.kind == NULLS or self.is_null(row):
            return 0
        if self.kind == SMALL_LIST:
            memcpy(small, self.fixed + 4 * at, 8)
            first[0] = small[0]
            end[0] = small[1]
        elif self.kind == LARGE_LIST:
            memcpy(large, self.fixed + 8 * at, 16)
            first[0] = large[0]
            end[0] = large[1]
        elif self.kind == FIXED_LIST:
            if at >= INT64_MAX // max(1, self.fixed_size) - 1:
                raise CorruptArrowError(f"column {self.name!r}, row {row}: the list has an invalid range")
            first[0] = self.fixed_size * at
            end[0] = first[0] + self.fixed_size
        elif self.data == NULL:
            raise CorruptArrowError(f"column {self.name!r} has lists without sizes")
        elif self.kind == SMALL_LIST_VIEW:
            memcpy(small, self.fixed + 4 * at, 4)
            memcpy(small + 1, self.data + 4 * at, 4)
            first[0] = small[0]
            end[0] = <int64_t>small[0] + small[1]
        else:
            memcpy(large, self.fixed + 8 * at, 8)
            memcpy(large + 1, self.data + 8 * at, 8)
            first[0] = large[0]
            end[0] = -1
            if 0 <= large[0] <= self.entries.length and large[1] <= self.entries.length - large[0]:
                end[0] = large[0] + large[1]
        if first[0] < 0 or end[0] < first[0] or end[0] > self.entries.length:
            raise CorruptArrowError(f"column {self.name!r}, row {row}: entries {first[0]} to {end[0]} are invalid")
        return 0


# --- rows -------------------------------------------------------------------------------------------------------------


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
                # The next batch may come in an hour. (What ends this call tells of the last one.)
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
                record.timestamp_ms = (producer.now_ns + producer.wall_offset_ns) // 1000000
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
                    PyUnicode_DecodeUTF8(data, size, NULL)
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
                object_at(self.value, at),
                None if self.key is None else object_at(self.key, at),
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
            name = object_at(self.headers.keys, self.headers.entries.offset + entry)
            if name is None:
                raise SerializationError(f"column {self.headers.name!r}: a header of a record has no name")
            if isinstance(name, bytes):
                try:
                    name = name.decode()
                except UnicodeDecodeError:
                    raise SerializationError(f"column {self.headers.name!r}: a header name is not UTF-8") from None
            value = object_at(self.headers.values, self.headers.entries.offset + entry)
            pairs.append((name, value.encode() if isinstance(value, str) else value))
            entry += 1
        return pairs


cdef object object_at(Column column, int64_t row):
    """The row's content as str or bytes."""
    cdef const char* data
    cdef Py_ssize_t size
    column.read_bytes(row, &data, &size)
    if size < 0:
        return None
    if not column.is_text:
        return PyBytes_FromStringAndSize(data, size)
    try:
        return PyUnicode_DecodeUTF8(data, size, NULL)
    except UnicodeDecodeError:
        raise SerializationError(f"column {column.name!r} is {column.type_name}, and a row is not UTF-8") from None


cdef bint is_ascii(const char* data, Py_ssize_t size) noexcept:
    cdef unsigned char bits = 0
    cdef Py_ssize_t i
    for i in range(size):
        bits |= <unsigned char>data[i]
    return bits < 0x80
