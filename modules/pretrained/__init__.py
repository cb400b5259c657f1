"""Parts of retrieval models that are pretrained networks of `transformers`."""
