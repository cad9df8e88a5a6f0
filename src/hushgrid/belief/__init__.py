"""What can be inferred from the models and the published releases (Eq. (2) and (3))."""
