"""The running curator: stores, clocks, sockets, the tick of each zone, and what it publishes."""
