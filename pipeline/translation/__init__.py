"""Stages mmt and augment: translators are trained, tested, and write captions."""
