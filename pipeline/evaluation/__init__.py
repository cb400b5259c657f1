"""Exported models measured on other data: `evaluate`."""
