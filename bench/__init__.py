"""The benchmark behind `nox -s bench`: Iron beside other programs, on the same weights, prompt and threads."""
