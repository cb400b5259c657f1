"""Captions of pictures of one's own, in the form that they are found in: files, folders of texts, data sets."""
