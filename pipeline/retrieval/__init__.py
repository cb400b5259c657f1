"""Stage vse: retrieval models are trained and ranked."""
