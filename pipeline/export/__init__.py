"""Trained models as folders that can be moved and shared, and what uses one without a gallery."""
