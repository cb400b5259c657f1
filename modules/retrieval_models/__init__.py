"""Retrieval models by name. To add one: a file here and a line in `MODELS`."""
