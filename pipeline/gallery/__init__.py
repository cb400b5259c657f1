"""Galleries: pictures and captions as vectors of a model, indexed and searched from the shell."""
