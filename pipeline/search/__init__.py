"""A trained model in use: exported, indexed, searched from the shell and on a page."""
