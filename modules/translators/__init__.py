"""Translators, and how they search for translations."""
