"""The running curator: stores, clocks and sockets. The pure core never imports it."""
