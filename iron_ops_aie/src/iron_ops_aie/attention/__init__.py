"""Attention: `MHA`, its array and its kernels."""
