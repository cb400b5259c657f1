"""Trained retrieval models tested by their captions alone."""
