"""Operators that move and reorder elements and compute nothing."""
