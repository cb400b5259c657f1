"""Loading networks of `transformers`: without its bars and remarks, and only if they are whole."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from logging import ERROR, getLogger
from typing import Any

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


def auto_model(name: str, not_found: Callable[[str, Exception], ModelError], **options: Any) -> tuple[Any, list[str]]:
    """A network of a folder or of the hub in float32, and which weights its file lacks; else the error `not_found`."""
    import torch
    from transformers import AutoModel  # both take seconds to import

    given = {"dtype": torch.float32, "trust_remote_code": False, "output_loading_info": True, **options}
    try:
        with quiet():
            refuse_adapters(name)
            network, read = AutoModel.from_pretrained(name, **given)
    except Exception as error:  # a damaged file can raise anything
        raise not_found(name, error) from None
    return network, list(read["missing_keys"])


def refuse_adapters(name: str, revision: str | None = None) -> None:
    """Refuse a network with adapters beside its weights: where `peft` is missing, transformers leaves them out.

    Args:
        name: a folder, or a name on the hub.
        revision: of a name on the hub.

    Raises:
        ValueError: it has some.
    """
    from transformers.utils.peft_utils import find_adapter_config_file

    if find_adapter_config_file(name, revision=revision):
        raise ValueError("adapters are beside its weights; merge them by `merge_and_unload` of peft, save the network, "
                         "and leave adapter_config.json out")  # fmt: skip


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
