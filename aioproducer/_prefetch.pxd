"""A hint to the CPU that memory is about to be written; a no-op where the compiler has no such hint."""

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define aiop_prefetch_for_write(address) __builtin_prefetch((address), 1)
    #else
    #define aiop_prefetch_for_write(address) ((void)(address))
    #endif
    """
    void aiop_prefetch_for_write(const void* address) noexcept nogil
