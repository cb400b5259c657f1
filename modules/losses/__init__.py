"""Losses of retrieval models, and of the translators and decoders that write sentences."""
