"""``python -m tests.simulation 2000 t2000``, ``... 5000-6000``, ``... seed 17``, ``... seed t17``."""

from __future__ import annotations

import sys

from tests.simulation.seeds import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
