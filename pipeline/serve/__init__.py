"""The service: a gallery and its model over HTTP; requests that arrive together are answered as one batch."""
