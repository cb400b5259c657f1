"""Pictures and what is seen in them: files, pixels, regions."""
