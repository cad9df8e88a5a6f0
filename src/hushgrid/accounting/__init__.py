"""What many releases give away together: leakage about one step, and about a whole day."""
