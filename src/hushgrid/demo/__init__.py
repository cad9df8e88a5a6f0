"""A simulated zone of 1,000 houses with a real curator, and adversaries that read its prices."""
