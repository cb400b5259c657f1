"""Query translation: test captions are translated, then ranked by a model of the other language."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset as Table

from data.captions import HUMAN, read_captions
from data.regions import RegionStore
from modules.beam import BeamSettings
from pipeline.errors import RecipeError
from pipeline.jobs.job import Job
from pipeline.recipes.settings import AugmentSettings, VseSettings
from pipeline.retrieval.ranks import load_module, rank_split, write_ranks
from pipeline.retrieval.rows import Row, Training, recall_headline
from pipeline.translation.batch_translation import translate_all
from pipeline.translation.leakage import lenders_of, refuse_seen_images
from pipeline.translation.mmt import translators_of
from pipeline.translation.translator_files import load_translator

VERSION = 1


def by_translation(training: Training) -> Row:
    """`vse.model` on test captions that the translator of `vse.translate` has translated into a language it reads.

    Raises:
        RecipeError: the recipe trains no such translator.
    """
    recipe, settings = training.recipe, training.recipe.vse
    assert settings.translate is not None
    title, direction = settings.translate.replace(":", "-"), settings.translate.partition(":")[2]
    if (translator := translators_of(recipe, training.workspace).get(title)) is None:
        other = recipe.augment.captions or recipe.augment.translators
        raise RecipeError(f"vse.translate is {settings.translate!r}, but {other} trains no {title}")
    trained, (source, target) = training.train(settings.model), direction.split("-")
    name = f"search-{title}-{settings.model}-{training.name}-{training.seed}"
    job = translated_job(name, trained, training.corpus, translator, direction, settings, recipe.augment)
    unseen = set() if target in training.languages else {source}  # the model reads the translation
    return training.row(job, [trained], f"{settings.model} by {settings.translate}", {source}, unseen)


def translated_job(
    name: str, trained: Job, corpus: Job, translator: Job, direction: str, settings: VseSettings, beam: AugmentSettings
) -> Job:
    """Translate-search: test captions of one language are translated, and a model of the other language ranks them.

    The figures are those of the translated language, queries and gallery. The translations are kept beside them. The
    translator gets no picture: a query has none.

    Raises:
        RecipeError: a test image has no caption in that language, so the gallery would be another one.
    """
    source, target = direction.split("-")
    plain = {"direction": direction, "beam_size": beam.beam_size, "length_penalty": beam.length_penalty}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the translations, and the ranks of them."""
        refuse_seen_images(inputs)
        captions = read_captions(inputs["corpus"] / "captions.parquet")
        store = RegionStore(inputs["corpus"] / "regions", check_values=False)
        rows = [
            row for row in captions.to_list()
            if row["split"] == "test" and row["language"] == source and row["source"] == HUMAN
        ]  # fmt: skip
        network, bpe = load_translator(inputs["translator"])
        lacking = {row["image_id"] for row in captions if row["split"] == "test" and row["source"] == HUMAN}
        lacking -= {row["image_id"] for row in rows}
        if lacking:
            first = min(lacking)
            raise RecipeError(f"{name}: {len(lacking)} test images have no caption in {source!r}, first {first!r}")
        found = translate_all(
            network, bpe, bpe.encode_all([row["text"] for row in rows], source), [None] * len(rows), None, target,
            BeamSettings(beam.beam_size, beam.length_penalty), beam.batch_tokens, settings.trainer,
        )  # fmt: skip
        translated = [
            row | {"language": target, "text": best.text} for row, (best, *_) in zip(rows, found, strict=True)
        ]
        table = Table.from_list(translated, features=captions.features)
        table.to_parquet(folder / "translated.parquet")
        module, text = load_module(inputs["model"], [target], settings.pretrained)
        rank_split(module, text, table, store, settings.trainer)
        return {"test": write_ranks(folder, {source: module.ranks[target]})}

    inputs = {"corpus": corpus, "model": trained, "translator": translator} | lenders_of(translator, corpus)
    return Job(name, "vse", VERSION, plain, inputs, run, True, asdict(settings.trainer), recall_headline)
