"""Vectors of pictures or captions as a file for a vector database: `embed`."""
