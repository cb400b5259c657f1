"""Translating many sentences with a finished translator, for testing and for augmentation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from data.regions import RegionStore
from data.text import BEGIN, END, SubWords, spaced
from data.translation import Sentences, in_order_loader
from modules.beam import Hypothesis
from modules.distributed import gather_objects
from modules.translation import Synthesis
from modules.translators import Search, Searched
from pipeline.jobs.trainer import make_trainer, stopping
from pipeline.recipes.settings import TrainerSettings
from pipeline.translation.kept_translations import KeptTranslations


@dataclass(frozen=True)
class Translated:
    """One translation: in surface form, Moses-tokenised, and its score and features (`modules.beam.Hypothesis`)."""

    text: str
    tokens: str
    score: float
    features: Mapping[str, float] = field(default_factory=dict)


def translate_all(
    translator: Searched, bpe: SubWords, source: Sequence[Sequence[int]], image_ids: Sequence[str | None],
    regions: RegionStore | None, target: str, search: Search, batch_tokens: int, settings: TrainerSettings,
    n_best: int = 1, other_ids: Sequence[str | None] = (), kept: Path | None = None,
) -> list[list[Translated]]:  # fmt: skip
    """Translate sentences (token numbers) into language `target`, in their order, on all devices of `settings`.

    A text-only translator ignores regions. `other_ids` are other images, for features that need them. `kept` is a
    folder where translations are written as they are made; a run that finds some there goes on behind them, and ends
    with the same translations.

    Returns:
        for each sentence its translations, best first, at most `n_best`.
    """
    keeping = [] if kept is None else [KeptTranslations(kept)]
    trainer = make_trainer(settings, callbacks=keeping)
    rank, world = trainer.global_rank, trainer.world_size
    synthesis = Synthesis(translator.eval(), search, BEGIN, END, n_best)
    for one in keeping:
        synthesis.found = one.read(rank, world)
    regions = regions if translator.regions is not None else None
    sentences = Sentences(source, None, image_ids, other_ids)
    loader = in_order_loader(sentences, regions, batch_tokens, rank, world, synthesis.found)
    with stopping():
        trainer.predict(synthesis, loader, return_predictions=False)
    found = dict(gather_objects(list(synthesis.found.items()), world))
    return [[_read(one, bpe, target) for one in found[number]] for number in range(len(source))]


def _read(one: Hypothesis, bpe: SubWords, target: str) -> Translated:
    tokens = spaced(bpe.decode_tokens(one.tokens), target)
    return Translated(bpe.decode(one.tokens, target), tokens, one.score, one.features)
