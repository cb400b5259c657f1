"""Recipes: settings, their loading from YAML and the command line, and checks before anything runs."""
