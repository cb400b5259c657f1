"""What is wrong with a corpus, and the data report."""
