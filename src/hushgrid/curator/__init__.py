"""From readings to a record: readings come in, an interval closes, a release is recorded."""
