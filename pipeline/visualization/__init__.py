"""Output for people: tables in the terminal, plots, pictures, pages of examples, TensorBoard's pictures."""
