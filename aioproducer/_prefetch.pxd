"""Hints to the CPU that memory is about to be read or written; no-ops where the compiler has no such hints."""

cdef enum:
    CACHE_LINE = 64     # bytes

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define aiop_prefetch(address) __builtin_prefetch((address), 0)
    #define aiop_prefetch_for_write(address) __builtin_prefetch((address), 1)
    #else
    #define aiop_prefetch(address) ((void)(address))
    #define aiop_prefetch_for_write(address) ((void)(address))
    #endif
    """
    void aiop_prefetch(const void* address) noexcept nogil
    void aiop_prefetch_for_write(const void* address) noexcept nogil
