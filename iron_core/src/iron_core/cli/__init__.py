"""The commands `iron` and `iron-run`."""
