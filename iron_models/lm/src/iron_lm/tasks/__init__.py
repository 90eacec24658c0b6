"""What a model is run for, one file a task."""
