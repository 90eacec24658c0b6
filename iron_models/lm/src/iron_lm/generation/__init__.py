"""Generation: a session with a model, and how its next token is chosen."""
