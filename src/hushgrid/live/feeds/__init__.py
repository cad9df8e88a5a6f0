"""Prices in the shapes that price consumers read. From releases and the public model alone."""
