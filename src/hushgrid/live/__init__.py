"""The edge that runs: stores, sources, the tick, publishers. State, time, files and sockets."""
