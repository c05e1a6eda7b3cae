"""Kafka's wire format: every message the producer speaks, in every version from brokers 0.11 to 4.3.

``codec.py``   the wire types: numbers, strings, arrays, varints, in the plain and the compact form
``schema.py``  messages declared as classes, compiled once per version to an encoder and a decoder
``header.py``  frames and headers around them
and one file per API, by its Kafka name. Nothing here does I/O, and whatever the bytes are, a decoder raises only
ProtocolError.

A message is declared once::

    class EndTxnResponse(Message):
        throttle_time_ms: Int32
        error_code: Int16
        producer_id: Int64 = field(default=-1, since=5, ignorable=True)
        producer_epoch: Int16 = field(default=-1, since=5, ignorable=True)

and then is a dataclass with ``encode(version)`` and ``decode(data, version)``. The compiled core writes and reads
Produce without these classes; they still describe it, and the tests compare the two.
"""
