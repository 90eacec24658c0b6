"""A clock for simulated arrays: hardware quantities, cycles of kernels, and the events of a run that moves no data."""
