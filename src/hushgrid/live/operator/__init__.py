"""What only a zone's operator sees: the load, why there is this much noise, what needs a hand."""
