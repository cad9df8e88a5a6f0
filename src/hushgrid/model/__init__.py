"""What the public believes about a zone: bounds, tariff, occupancy models, laws of readings."""
