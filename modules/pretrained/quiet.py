"""Loading networks of `transformers` without its bars and remarks."""

from collections.abc import Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger


@contextmanager
def quiet() -> Iterator[None]:
    """Show neither a bar of loading weights, which takes seconds, nor what is missing or unexpected in a file."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub = getLogger("huggingface_hub")
    of_hub = hub.level
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.setLevel(ERROR)  # else it tells of each retry
    try:
        yield
    finally:
        hub.setLevel(of_hub)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
