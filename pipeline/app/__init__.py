"""The page that searches a gallery."""
