"""Several curators on one service: who runs which zone, and how the others follow."""
