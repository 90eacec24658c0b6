"""What stands before a model's layers: sound as log-mel frames, images as patches, convolutions and what goes with them, a part each."""
