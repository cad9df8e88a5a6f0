"""Everything read from or written to disk: zone files, service files, models, traces, results."""
