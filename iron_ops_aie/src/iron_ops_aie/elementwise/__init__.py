"""Operators whose element i is computed from element i of their inputs."""
