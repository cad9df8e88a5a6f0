"""Days of readings at once: aggregated by an engine, released by the curator (docs/capacity.md)."""
