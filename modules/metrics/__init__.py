"""Metrics of retrieval, translation and captions, with their intervals."""
