"""Input: corpora, the caption table, the region store, text, DataModules. Holds no model."""
