"""Files of an image looked at and compared: `iron image inspect` and `iron image diff`."""
