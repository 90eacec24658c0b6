"""Who executes a plan: the `Backend` protocol, `reference`, `null`, and the choice between those installed."""
