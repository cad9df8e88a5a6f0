"""How many examples a test takes: all of them in make soak, a quarter in make test.

There the examples are the same in every run, so that more of them find nothing new.
"""

import os

SOAK = "HUSHGRID_RANDOM" in os.environ


def examples(full: int) -> int:
    return full if SOAK else -(-full // 4)
