"""Translator networks by name, and translation by beam search or sampling."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from modules.translators.beam import BeamSettings, Hypothesis, beam_search
from modules.translators.ensemble import Ensemble
from modules.translators.image_text import ImageTextTranslator
from modules.translators.pretrained import PretrainedTranslator
from modules.translators.regional import RegionalTranslator
from modules.translators.rerankers import Reranker
from modules.translators.sampling import SampleSettings, sample
from modules.translators.transformer import TransformerTranslator

Batch = dict[str, Tensor]
Translator = RegionalTranslator | TransformerTranslator
Searched = Translator | Ensemble | Reranker | PretrainedTranslator | ImageTextTranslator
Search = BeamSettings | SampleSettings
NETWORKS: dict[str, type[Translator]] = {"bilstm": RegionalTranslator, "transformer": TransformerTranslator}


def network_options(network: str) -> dict[str, Any]:
    """Return the settings that are specific to this network, with their defaults."""
    own, common = (inspect.signature(kind.__init__).parameters for kind in (NETWORKS[network], RegionalTranslator))
    return {name: parameter.default for name, parameter in own.items() if name not in common}


def build_translator(network: str = "bilstm", **arguments: Any) -> Translator:
    """Build a translator with random weights.

    Args:
        network: one of `NETWORKS`.
        arguments: arguments of its class.
    """
    return NETWORKS[network](**arguments)


def reads_pictures(translator: Searched) -> bool:
    """Does a translator, or what a `Reranker` re-ranks, read the `pictures` of a batch?"""
    direct = translator.direct if isinstance(translator, Reranker) else translator
    return isinstance(direct, ImageTextTranslator)


def translate(
    translator: Searched, batch: Mapping[str, Tensor], settings: Search, begin: int, end: int
) -> list[list[Hypothesis]]:
    """Translate a batch (`source`, `source_lengths`, `regions` or `pictures` if multimodal); best translations first.

    Raises:
        ModelError: the translator is a `Reranker`, which cannot re-rank the results of this search, or a
            `PretrainedTranslator` or `ImageTextTranslator`, which does not have it.
    """
    if isinstance(translator, Reranker):
        blind = translator.direct.regions is None  # then only features look at the regions
        seen = {name: tensor for name, tensor in batch.items() if not (blind and name == "regions")}
        n_best = translate(translator.direct, seen, translator.widened(settings), begin, end)  # type: ignore[arg-type]
        return translator.rerank(batch, n_best)
    if isinstance(translator, PretrainedTranslator | ImageTextTranslator):  # it has marks of its own
        return translator.search(batch, settings)
    with torch.no_grad():
        memory = translator.encode(batch["source"], batch["source_lengths"], batch.get("regions"))
        longest = (settings.max_ratio * batch["source_lengths"]).long() + 10
        if isinstance(settings, SampleSettings):
            return sample(translator, memory, settings, begin, end, longest, batch["index"].tolist())
        return beam_search(translator, memory, settings, begin, end, longest)
