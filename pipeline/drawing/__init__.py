"""What people look at: tables in the terminal, plots, pictures, pages of examples, TensorBoard's pictures."""
