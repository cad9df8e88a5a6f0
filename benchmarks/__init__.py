"""Speed and memory, judged as ratios taken in one run: one file a question."""

import os

# Threads that wait should sleep. Spinning, they slow the single-threaded peer that runs next, and
# lose their turn to any other work on the machine: parallel loops then take ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
