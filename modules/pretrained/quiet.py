"""Loading networks of `transformers`: without its bars and remarks, and only if they are whole."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger

from modules.errors import ModelError


@contextmanager
def quiet() -> Iterator[None]:
    """Show neither a bar of loading weights, which takes seconds, nor what is missing or unexpected in a file.

    Bars of downloads, which take minutes, are shown.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, enable_progress_bars
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    hub = getLogger("huggingface_hub")
    of_hub = hub.level
    logging.set_verbosity_error()
    downloads = not are_progress_bars_disabled()
    logging.disable_progress_bar()
    if downloads:
        enable_progress_bars()
    hub.setLevel(ERROR)  # else it tells of each retry
    try:
        yield
    finally:
        hub.setLevel(of_hub)
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def require_weights(missing: Iterable[str], where: str) -> None:
    """Refuse a network whose file lacks weights: they would be random.

    Args:
        missing: those that it reads, of the `missing_keys` of `from_pretrained`.
        where: the network is named.

    Raises:
        ModelError: there are some.
    """
    if lacking := sorted(missing):
        raise ModelError(f"{where}: its weights lack {lacking[0]}; get one that is whole")
