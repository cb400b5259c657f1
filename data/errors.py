"""The error that reading data raises on purpose."""


class DataError(ValueError):
    """Bad input in one line: what is wrong, where (file, line, id), what was expected, what to do next."""
