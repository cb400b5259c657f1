"""Stage prepare, and `doctor`: from a corpus's own files to one caption table and one region store."""
