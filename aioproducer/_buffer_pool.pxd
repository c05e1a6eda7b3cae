"""Memory of the records: a byte budget and the blocks that batches chain."""

import cython

cdef enum BlockKind:
    ODD = -1            # of a size of its own
    LARGE
    ORDINARY
    HALF
    QUARTER
    EIGHTH
    SIXTEENTH
    KINDS


@cython.final
cdef class Buffer:
    """Memory of one batch, lent by the pool.

    Owner   the RecordBatch it was taken for, until it calls BufferPool.release().
    Always  0 <= used <= capacity; the bytes below `used` never change once a view was given out. In the last buffer
            of a batch, the owner updates `used` only before a read.
    Views   a transport may read the bytes after the owner let go, so live views are counted and the block returns
            to the pool only when the owner has released it and views == 0.
    """
    cdef unsigned char* data
    cdef readonly Py_ssize_t capacity   # bytes
    cdef readonly Py_ssize_t used       # bytes
    cdef readonly int views
    cdef BlockKind kind
    cdef bint lent                      # the owner still holds it
    cdef Buffer next                    # next in the same batch
    cdef BufferPool pool
    cdef Py_ssize_t shape[1]            # of a view under construction; equal for all views, `used` being final by then
    cdef Py_ssize_t strides[1]


@cython.final
cdef class BufferPool:
    """The producer's memory: lends at most `total_bytes`, and holds no more, blocks kept for reuse included."""
    cdef readonly Py_ssize_t total_bytes
    cdef readonly Py_ssize_t available_bytes
    cdef readonly Py_ssize_t block_bytes
    cdef readonly Py_ssize_t idle_bytes     # in blocks kept for reuse
    cdef Py_ssize_t sizes[<int>KINDS]       # of the blocks of each kind
    cdef list idle                          # a list of the blocks kept for reuse for each kind
    cdef bint keeps                         # returned blocks for reuse
    cdef object on_late_return              # WeakMethod, called when a block comes back after its owner let go

    cdef void tell_of_late_return(self) noexcept
    cdef Buffer take(self, Py_ssize_t size, Py_ssize_t held_bytes, Py_ssize_t sharers)
    cdef Buffer lend(self, Py_ssize_t size, BlockKind kind)
    cdef void let_go(self)
    cdef void release(self, Buffer buffer)
    cdef void give_back(self, Buffer buffer) noexcept
