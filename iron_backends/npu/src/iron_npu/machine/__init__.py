"""The machine: what a system has of an NPU, its driver and the vendor's programs, and what it lacks."""
