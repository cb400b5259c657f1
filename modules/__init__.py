"""Layers, translators, retrieval models, losses, metrics and LightningModules; without file paths or recipes."""
