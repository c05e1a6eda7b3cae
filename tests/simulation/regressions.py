"""Seeds that once failed, with what they found. They are run first.

A seed means the same run only as long as the simulation draws the same things in the same order, so each bug also has a
test for the module that it was in.
"""

from __future__ import annotations

REGRESSIONS: dict[str, str] = {
    "227": "send_many through interceptors lost count of a record that had ended before its call went on",
    "231": "a former leader that was cut off refused what its successor had written, and it was written again",
    "270": "a broker that restarted remembered one batch; those before it were written again under another number",
    "706": "send_many took a record, gave the loop a turn, and forgot it when the producer was closed meanwhile",
    "996": "InitProducerId went out beside another request, with one allowed in flight",
    "1149": "a batch was written again, as the broker had restarted and remembered one that had failed in doubt",
    "3502": "a topic that was forgotten while a record came in for it was never asked for again",
    "4044": "the simulation itself: a throttle that the answer can't tell of, to an unknown version of ApiVersions",
    "9776": "the simulation itself: it did not wait for a task that begins late in a run without faults",
    "35382": "a leader that an answer about another topic no longer listed was not looked for",
    "71667": "the fake cluster itself: an answer spoilt twice, of which too little was left to spoil",
    "83346": "an answer that nobody waited for any more, another broker having answered first, throttled nobody",
    "90476": "the simulation itself: it did not know that a flush may tell of a record that came while it waited",
    "159709": "a copy on a connection that was given up was written after the repeated batch had been ruled out",
    "167672": "the simulation itself: the leader of a topic that was made again is tried at once",
    "t4354": "send_many that had waited went on in the next transaction",
    "t5676": "an abort refused after a commit that may have been done was called surely unwritten",
    "t9560": "a block whose producer was closed while its commit waited for its turn told of a wrong state",
    "t25687": "the simulation itself: a record was sent after begin_transaction() and before its caller went on",
    "t31787": "a begin whose producer failed while its coordinator was loading told of the loading",
    "t55768": "the simulation itself: of two tasks that ended a transaction one was refused, and the other aborted it",
    "t56175": "after a prepared transaction whose commit was refused the next had the same epoch, and was committed",
    "t304591": "start() waited for the answer of a throttling broker past max_block_ms",
    "t420041": "a newer producer with another id was told as a transactional id that was forgotten",
    "t422421": "a block did not wait for a commit that another task had begun, and called it committed",
}
