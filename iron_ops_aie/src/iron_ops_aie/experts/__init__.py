"""Mixtures of experts: which of them a row goes to, and what they make of it."""
