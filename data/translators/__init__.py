"""What translators read and write beside sentences: their tokens, n-best lists, capital letters."""
