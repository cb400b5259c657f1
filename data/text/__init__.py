"""Sentences: characters, languages, words, tokens, vocabularies."""
