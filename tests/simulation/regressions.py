"""Seeds that once failed, with what they found. They are run first.

A seed stands for the same run only as long as the simulation draws the same things in the same order, so each bug has a
test of its own beside the module that it was in.
"""

from __future__ import annotations

REGRESSIONS: dict[int, str] = {}
