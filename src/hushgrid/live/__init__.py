"""The living zone: what has a clock, files and sockets around the pure core."""
