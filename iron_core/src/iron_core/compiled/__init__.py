"""A graph, or one operator, on one backend and device: compiled and called."""
