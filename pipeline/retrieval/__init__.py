"""Stage vse: retrieval models are trained and tested."""
