"""Memory for the records: a byte budget and the blocks that batches chain.

Theory of operation. `take(size, held_bytes, sharers)` lends a block, or a larger one-off block, and charges its
capacity to the budget; it returns None rather than exceed `total_bytes`, and the caller waits its turn elsewhere (see
memory_queue.py). Blocks grow with their batch. The first is small, so that the batches of thousands of partitions, with
a record or two each, fit into the budget. A batch that has filled several gets large ones, because each block costs a
view, a checksum call and a transport buffer. No block is larger than its batch's share of what is available, down to a
sixteenth of an ordinary block: else the batches that ask first would leave nothing to the others, which would all have
to go with a single small block. `release` returns the block once no view of it is left: a transport may still hold the
bytes of a request whose answer has come, and memory on its way to the wire must not change.

A record lies within one block, so the rest of a block stays unused when the next record does not fit. A record larger
than an ordinary block gets a block of its own size, even in a batch of large blocks, which thus waste at most a fourth.

Blocks of all these sizes are kept for reuse, and freed when the pool would otherwise hold more than the budget.

The garbage collector does not track blocks and pool: thousands of blocks may be lent, and nothing they reference leads
back to them. So the pool has only a weak reference to its callback for late returns.
"""

import cython

from weakref import WeakMethod

from cpython.buffer cimport PyBUF_FORMAT, PyBUF_WRITABLE
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from libc.stdlib cimport free, malloc

from aioproducer._not_by_hand cimport aiop_not_by_hand

cdef enum:
    LARGE_BLOCKS = 4    # ordinary blocks per large one; also how many large ones must be available
    LARGE_AFTER = 2     # ordinary blocks held before a batch gets large ones
    FEWEST_RECORDS = 2  # that a block has room for, if it is smaller than an ordinary one because others want theirs
    LEAST_GROWTH = 8    # such a block has at least this fraction (1/8) of what its batch holds

cdef char* UNSIGNED_BYTE = b"B"


@cython.final
@cython.no_gc
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
        cdef BufferPool pool = self.pool
        cdef PyObject* kind
        cdef PyObject* error
        cdef PyObject* traceback
        self.views -= 1
        if self.views == 0 and not self.lent and pool is not None:
            PyErr_Fetch(&kind, &error, &traceback)      # an exception may be releasing the view: keep it
            pool.give_back(self)
            pool.tell_of_late_return()
            PyErr_Restore(kind, error, traceback)


@cython.final
@cython.no_gc
cdef class BufferPool:

    def __cinit__(self, Py_ssize_t total_bytes, Py_ssize_t block_bytes, *, bint keeps=True):
        self.total_bytes = total_bytes
        self.available_bytes = total_bytes
        self.block_bytes = block_bytes
        self.keeps = keeps
        self.sizes[<int>LARGE] = LARGE_BLOCKS * block_bytes
        for kind in range(ORDINARY, KINDS):
            self.sizes[kind] = block_bytes >> (kind - ORDINARY)
        self.idle = [[] for _ in range(KINDS)]

    @property
    def used_bytes(self):
        return self.total_bytes - self.available_bytes

    def call_on_late_return(self, method):
        self.on_late_return = WeakMethod(method)

    def keep_nothing(self):
        """Free the blocks kept for reuse, and from now on every returned one: nothing will be taken any more."""
        self.keeps = False
        while self.idle_bytes:
            self.let_go()

    cdef void tell_of_late_return(self) noexcept:
        told = None if self.on_late_return is None else self.on_late_return()
        if told is not None:
            told()

    cdef Buffer take(self, Py_ssize_t size, Py_ssize_t held_bytes, Py_ssize_t sharers):
        cdef int kind = EIGHTH
        cdef Py_ssize_t share, least
        if held_bytes == 0:
            while self.sizes[kind] < size and kind > ORDINARY:
                kind -= 1
            return self.lend(size, <BlockKind>kind)
        kind = ORDINARY
        if (held_bytes >= LARGE_AFTER * self.block_bytes and size <= self.block_bytes
                and self.available_bytes >= LARGE_BLOCKS * self.sizes[<int>LARGE]):
            kind = LARGE
        share = self.available_bytes // max(1, sharers)
        least = max(FEWEST_RECORDS * size, held_bytes // LEAST_GROWTH)
        while self.sizes[kind] > share and kind < SIXTEENTH and self.sizes[kind + 1] >= least:
            kind += 1
        return self.lend(size, <BlockKind>kind)

    cdef Buffer lend(self, Py_ssize_t size, BlockKind kind):
        cdef Buffer buffer
        cdef Py_ssize_t capacity = max(size, self.sizes[<int>kind])
        cdef list idle = <list>self.idle[<int>kind]
        if capacity > self.available_bytes:
            if size > self.available_bytes:
                return None
            capacity = self.available_bytes     # the rest of the budget may be less than a block
        if capacity == self.sizes[<int>kind] and idle:
            buffer = <Buffer>idle.pop()
            self.idle_bytes -= capacity
        else:
            while self.idle_bytes > self.available_bytes - capacity:
                self.let_go()
            buffer = Buffer.__new__(Buffer)
            buffer.data = <unsigned char*>malloc(capacity)
            if buffer.data == NULL:
                raise MemoryError(f"no memory for a block of {capacity} bytes")
            buffer.capacity = capacity
            buffer.kind = kind if capacity == self.sizes[<int>kind] else ODD
        self.available_bytes -= capacity
        buffer.lent = True
        buffer.pool = self
        return buffer

    cdef void let_go(self):
        """Free a block kept for reuse, of the largest there are."""
        cdef list idle
        for idle in self.idle:
            if idle:
                self.idle_bytes -= (<Buffer>idle.pop()).capacity
                return

    cdef void release(self, Buffer buffer):
        buffer.lent = False
        if buffer.views == 0:
            self.give_back(buffer)

    cdef void give_back(self, Buffer buffer) noexcept:
        buffer.pool = None
        self.available_bytes += buffer.capacity
        if buffer.kind != ODD and self.keeps:
            (<list>self.idle[<int>buffer.kind]).append(buffer)
            self.idle_bytes += buffer.capacity


aiop_not_by_hand(Buffer)
