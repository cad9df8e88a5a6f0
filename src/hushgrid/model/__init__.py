"""What the public believes about a zone: houses, tariff, occupancy and consumption models."""
