"""Speed and memory, judged as ratios taken in one run: one file a question."""
