"""Checkpoints: the files weights come in, and what they say of their model."""
