"""What draws the next token and prepares the next call."""
