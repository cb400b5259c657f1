"""DataModules: batches of images with captions, and of sentence pairs."""
