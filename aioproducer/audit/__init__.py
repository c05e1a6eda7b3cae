"""Marks on records that let a reader prove what arrived: nothing lost, nothing duplicated, nothing out of order.

    audit = Audit("orders-service", statements="audit/")
    producer = Producer(bootstrap_servers=..., interceptors=[audit])

``aioproducer audit`` reads the topics and checks them. See docs/audit.md.
"""

from __future__ import annotations

from aioproducer.audit.interceptor import Audit as Audit
from aioproducer.audit.mark import HEADER as HEADER
from aioproducer.audit.mark import Mark as Mark

__all__ = ["HEADER", "Audit", "Mark"]
