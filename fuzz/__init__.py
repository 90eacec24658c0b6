"""Fuzz targets: every reader of a file is given files built by code and then damaged by structure. `python -m fuzz --help`."""
