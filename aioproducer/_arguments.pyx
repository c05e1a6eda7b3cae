"""Arguments of a record: what a caller may pass, as bytes and numbers, or a SerializationError that says what is wrong.

Nothing here has state. Values that need no conversion, as most do, take the inline functions of the .pxd.
"""

import re

from cpython.bytes cimport PyBytes_CheckExact
from cpython.number cimport PyNumber_Index
from cpython.unicode cimport PyUnicode_CheckExact

from aioproducer.errors import RecordTooLargeError, SerializationError

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL


cpdef str checked_topic(topic):
    """The topic as a plain str, also for an enum member."""
    if not isinstance(topic, str):
        raise SerializationError(f"the topic is a {type(topic).__name__}; str is needed")
    return str.__str__(topic)


cdef object too_large(topic, Py_ssize_t size, Py_ssize_t limit):
    return RecordTooLargeError(
        f"a record for topic {topic!r} takes up to {size:,} bytes, the limit is {limit:,} "
        "(the smaller of max_request_size and buffer_memory)"
    )


cdef bytes content_of(data, topic, Py_ssize_t limit):
    """The content of a bytes-like object in index order, whatever its memory layout.

    A copy of a whole file in memory would hold the loop, and may take more memory than there is.
    """
    view = memoryview(data)
    if "O" in view.format and "O" in re.sub(":[^:]*:", "", view.format):    # field names stand between colons
        raise TypeError("its buffer holds addresses of Python objects")
    if view.nbytes > limit:
        raise too_large(topic, view.nbytes, limit)
    return bytes(view)


cdef object unreadable(str what, data, str needed, error):
    """The error for an object without readable bytes; a user-defined buffer may raise anything."""
    if isinstance(error, (BufferError, TypeError, ValueError)):
        return SerializationError(f"{what} is a {type(data).__name__}; {needed}")
    return SerializationError(f"{what} is a {type(data).__name__} that can't be read: {type(error).__name__}")


cpdef bytes bytes_of(data, str what, topic, Py_ssize_t limit):
    try:
        return content_of(data, topic, limit)
    except RecordTooLargeError:
        raise
    except Exception as error:
        raise unreadable(
            f"the {what} of a record for topic {topic!r}", data,
            f"bytes-like, str or None is needed, from the caller or from a {what}_serializer", error
        ) from error


cdef object as_buffer(data, str what, str topic, Py_ssize_t limit):
    """`data` itself if it is exactly bytes or str, else its content as bytes."""
    if data is None or PyBytes_CheckExact(data) or PyUnicode_CheckExact(data):
        return data
    if isinstance(data, str):
        return str.__str__(data)
    return bytes_of(data, what, topic, limit)


cdef const char* utf8_of(text, Py_ssize_t* size, str what, str topic) except NULL:
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except UnicodeEncodeError as error:
        # No cause is chained: its text would show the payload.
        raise SerializationError(
            f"the {what} of a record for topic {topic!r} is a str that can't be encoded as UTF-8 ({error.reason})"
        ) from None


cpdef list encodable_headers(headers, str topic, Py_ssize_t limit):
    """Headers as a list of (str, bytes or None), checked; what yields them may have no end."""
    cdef list checked = []
    cdef Py_ssize_t size = 0
    if headers is None:
        return None
    try:
        for name, value in headers.items() if hasattr(headers, "items") else headers:
            if not isinstance(name, str):
                raise SerializationError(
                    f"a header name of a record for topic {topic!r} is a {type(name).__name__}; str is needed"
                )
            size += 2 + check_header_name(name, topic)
            if value is not None:
                if not PyBytes_CheckExact(value):
                    value = header_bytes(value, name, topic, limit)
                size += PyBytes_GET_SIZE(value)
            if size > limit:
                raise too_large(topic, size, limit)
            checked.append((name, value))
    except (RecordTooLargeError, SerializationError):
        raise
    except (TypeError, ValueError) as error:
        raise SerializationError(
            f"headers of a record for topic {topic!r} must be pairs of (str, bytes or None), or a mapping"
        ) from error
    except Exception as error:
        raise SerializationError(
            f"the headers of a record for topic {topic!r} can't be read: {type(error).__name__}"
        ) from error
    return checked if checked else None


cdef Py_ssize_t check_header_name(name, str topic) except -1:
    """Its size in bytes."""
    cdef Py_ssize_t size
    try:
        PyUnicode_AsUTF8AndSize(name, &size)
    except UnicodeEncodeError as error:
        raise SerializationError(
            f"a header name of a record for topic {topic!r} can't be encoded as UTF-8 ({error.reason})"
        ) from None
    return size


cdef bytes header_bytes(value, name, str topic, Py_ssize_t limit):
    try:
        return content_of(value, topic, limit)
    except RecordTooLargeError:
        raise
    except Exception as error:
        raise unreadable(
            f"header {name!r} of a record for topic {topic!r}", value, "bytes or None is needed", error
        ) from error


cdef object lasting(headers, topic, Py_ssize_t limit):
    """Headers that can be read twice: an iterator would be exhausted when the slow path reads it.

    `can_last` says without a call whether they are of a type that can.
    """
    if isinstance(headers, (list, tuple, dict)) or not isinstance(topic, str):
        return headers
    return encodable_headers(headers, str.__str__(topic), limit)


cpdef check_partition(partition, str topic):
    """`partition` as an int, or None for None; SerializationError if it can't be a partition number."""
    return None if partition is None else checked_partition(partition, topic)


cdef int64_t checked_partition(partition, str topic) except -1:
    if not isinstance(partition, int) or isinstance(partition, bool):
        partition = as_int(partition, f"the partition of a record for topic {topic!r}", "an int")
    if not 0 <= partition <= 0x7FFFFFFF:
        raise SerializationError(f"partition {partition} of a record for topic {topic!r} is outside 0 to 2147483647")
    return partition


cdef int64_t checked_timestamp(timestamp_ms, str topic) except -1:
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        timestamp_ms = as_int(timestamp_ms, f"timestamp_ms of a record for topic {topic!r}",
                              "an int (milliseconds since the epoch)")
    if not 0 <= timestamp_ms <= 0x7FFFFFFFFFFFFFFF:
        raise SerializationError(f"timestamp_ms {timestamp_ms} of a record for topic {topic!r} is outside 0 to 2^63-1")
    return timestamp_ms


cdef as_int(number, str what, str needed):
    """Convert an integer that is not an int, such as numpy's."""
    cause = None
    if not isinstance(number, bool):
        try:
            return PyNumber_Index(number)
        except Exception as error:
            cause = error
    raise SerializationError(f"{what} is a {type(number).__name__}; {needed} or None is needed") from cause
