"""Vectors of words and sentences."""
