"""Arrow columns: which types make which part of a record, and what a row holds.

Theory of operation. `bytes_column` and the like look at a column's type, once per call, and say how its rows are to be
read, or why they can't be. A Column is then bound to one batch of the data after the other, and its rows are read as
pointers and numbers, straight from the buffers. What these claim is checked when it is read: see `_arrow_source`.

Source: the Arrow columnar format, the Arrow C data interface (format strings).
"""

import cython

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int8_t, int16_t, uint16_t
from libc.string cimport memcpy

from aioproducer._arrow_source import CorruptArrowError
from aioproducer.errors import RecordTooLargeError, SerializationError

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

    cdef object object_at(self, int64_t row):
        """The row's content as str or bytes; None for null."""
        cdef const char* data
        cdef Py_ssize_t size
        self.read_bytes(row, &data, &size)
        if size < 0:
            return None
        if not self.is_text:
            return PyBytes_FromStringAndSize(data, size)
        try:
            return data[:size].decode("utf-8")
        except UnicodeDecodeError:
            raise SerializationError(f"column {self.name!r} is {self.type_name}, and a row is not UTF-8") from None
