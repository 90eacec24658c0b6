"""Products with matrices, and what makes numbers of packed weights."""
