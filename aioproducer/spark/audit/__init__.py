"""The delivery audit as a Spark job: compares the content of topics with the marks and statements.

    found = audit_topics(spark, {"kafka.bootstrap.servers": ...}, ["orders"], statements=["/audit/orders"])
    found.table.show()

``aioproducer audit`` does the same from the command line. See docs/audit.md.
"""

from __future__ import annotations

from aioproducer.extras import missing

try:
    from aioproducer.spark.audit.report import Findings as Findings
    from aioproducer.spark.audit.run import audit_stream as audit_stream
    from aioproducer.spark.audit.run import audit_topics as audit_topics
    from aioproducer.spark.audit.run import stream_findings as stream_findings
except ModuleNotFoundError as _error:
    raise missing(_error, __name__, "audit") from None

__all__ = ["Findings", "audit_stream", "audit_topics", "stream_findings"]
