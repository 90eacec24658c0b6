"""The dataflow vocabulary of arrays (its machinery of tunables and identity lives in `declare`)."""
