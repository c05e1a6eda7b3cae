"""Arguments of a record, as bytes and numbers."""

from libc.stdint cimport int64_t

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact
from cpython.list cimport PyList_CheckExact
from cpython.tuple cimport PyTuple_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact


cpdef str checked_topic(topic)
cdef object too_large(topic, Py_ssize_t size, Py_ssize_t limit)
cdef object as_buffer(data, str what, str topic, Py_ssize_t limit)
cpdef bytes bytes_of(data, str what, topic, Py_ssize_t limit)
cdef const char* utf8_of(text, Py_ssize_t* size, str what, str topic) except NULL
cpdef list encodable_headers(headers, str topic, Py_ssize_t limit)
cdef object lasting(headers, topic, Py_ssize_t limit)
cpdef check_partition(partition, str topic)
cdef int64_t checked_partition(partition, str topic) except -1
cdef int64_t checked_timestamp(timestamp_ms, str topic) except -1


cdef inline bint is_plain(data) noexcept:
    return data is None or PyBytes_CheckExact(data) or PyUnicode_CheckExact(data)


cdef inline bint can_last(headers) noexcept:
    return headers is None or PyList_CheckExact(headers) or PyTuple_CheckExact(headers) or PyDict_CheckExact(headers)


cdef inline int point_at(data, const char** start, Py_ssize_t* size, str what, str topic) except -1:
    """Point at the bytes of exact bytes, str or None; valid as long as `data` is."""
    if data is None:
        start[0] = NULL
        size[0] = -1
    elif PyBytes_CheckExact(data):
        start[0] = PyBytes_AS_STRING(data)
        size[0] = PyBytes_GET_SIZE(data)
    else:
        start[0] = utf8_of(data, size, what, topic)
    return 0
