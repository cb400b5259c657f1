"""Layers and networks that models are made of."""
