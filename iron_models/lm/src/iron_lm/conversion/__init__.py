"""Writing a checkpoint in another format."""
