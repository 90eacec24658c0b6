"""What models are made of: graphs that are called inside graphs, each with its config, its weights' shapes and its twin in numpy."""
