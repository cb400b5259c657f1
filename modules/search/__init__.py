"""Scores of images and captions, indexes, ranks, and reranking."""
