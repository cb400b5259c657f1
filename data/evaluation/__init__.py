"""What a model is tested on beside its own test, and what it has seen in training."""
