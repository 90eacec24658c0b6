"""Vectors of many texts, in a file."""
