"""Memory of the records: a byte budget and the blocks that batches chain.

Theory of operation. `take(size)` lends a block of `block_bytes`, or a larger one-off block, and charges its capacity to
the budget; it returns None rather than go above `total_bytes`, and the caller waits its turn elsewhere (see
memory_queue.py). `release` returns the block once no view of it lives: a transport may still hold the bytes of a
request whose answer has come, and memory that is on its way to the wire must not change.
"""

import cython

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_WRITABLE
from libc.stdlib cimport free, malloc

cdef char* UNSIGNED_BYTE = b"B"


@cython.final
cdef class Buffer:

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.used

    def __getbuffer__(self, Py_buffer* view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("record memory is read-only")
        self.shape[0] = self.used
        self.strides[0] = 1
        view.buf = self.data
        view.obj = self
        view.len = self.used
        view.itemsize = 1
        view.readonly = 1
        view.ndim = 1
        view.format = NULL
        if flags & PyBUF_FORMAT:
            view.format = UNSIGNED_BYTE
        view.shape = self.shape
        view.strides = self.strides
        view.suboffsets = NULL
        view.internal = NULL
        self.views += 1

    def __releasebuffer__(self, Py_buffer* view):
        self.views -= 1
        if self.views == 0 and not self.lent and self.pool is not None:
            pool = self.pool
            pool.give_back(self)
            if pool.on_late_return is not None:
                pool.on_late_return()


@cython.final
cdef class BufferPool:

    def __cinit__(self, Py_ssize_t total_bytes, Py_ssize_t block_bytes):
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self.block_bytes = block_bytes
        self.free_blocks = []
        self.on_late_return = None

    @property
    def used_bytes(self):
        return self.total_bytes - self.available_bytes

    cdef Buffer take(self, Py_ssize_t size):
        cdef Buffer buffer
        cdef Py_ssize_t capacity = size if size > self.block_bytes else self.block_bytes
        if capacity > self.available_bytes:
            if size > self.available_bytes:
                return None
            capacity = self.available_bytes  # the last piece of the budget may be shorter than a block
        if capacity == self.block_bytes and self.free_blocks:
            buffer = <Buffer>self.free_blocks.pop()
        else:
            buffer = Buffer.__new__(Buffer)
            buffer.data = <unsigned char*>malloc(capacity if capacity > 0 else 1)
            if buffer.data == NULL:
                raise MemoryError(f"no memory for a block of {capacity} bytes")
            buffer.capacity = capacity
        self.available_bytes -= capacity
        buffer.used = 0
        buffer.lent = True
        buffer.pool = self
        return buffer

    cdef void release(self, Buffer buffer):
        buffer.lent = False
        if buffer.views == 0:
            self.give_back(buffer)

    cdef void give_back(self, Buffer buffer):
        buffer.pool = None
        self.available_bytes += buffer.capacity
        # The garbage collector may have taken the pool's list already, and free the views after it.
        if buffer.capacity == self.block_bytes and self.free_blocks is not None:
            self.free_blocks.append(buffer)
