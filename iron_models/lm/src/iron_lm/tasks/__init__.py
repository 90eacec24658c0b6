"""What a model is run for: a chat, a benchmark, the gates."""
