"""What many releases disclose together: leakage about one step, and about a whole day."""
