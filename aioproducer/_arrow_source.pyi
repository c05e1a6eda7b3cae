"""ArrowSource: another library's data, taken over by the Arrow C data interface."""

from typing import Any, final

from aioproducer.errors import SerializationError

class CorruptArrowError(SerializationError):
    """Buffers that contradict their own lengths: nothing from this source can be trusted."""

@final
class ArrowSource:
    """A stream of record batches, or one batch, taken over by the PyCapsule interface and released with this object.

    The constructor runs the other library's code, which may take long.

    Raises:
        TypeError: ``data`` has no such interface, or no columns.
        SerializationError: the stream failed.
    """

    def __init__(self, data: Any) -> None: ...
