"""What is read: corpora, the caption table, the region store, text, DataModules. Knows no model."""
