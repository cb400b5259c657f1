"""Query translation: test captions are translated, then ranked by a model of the other language."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datasets import Dataset as Table

from data.captions.table import HUMAN, Caption, write_captions
from modules.translators.beam import BeamSettings
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.retrieval.ranks import encode_split, open_test, ranking_job, write_ranks
from pipeline.retrieval.rows import Row
from pipeline.retrieval.training import Training
from pipeline.translation.leakage import lenders_of, refuse_seen_images
from pipeline.translation.translating import translate_all
from pipeline.translation.translator_files import load_translator
from pipeline.vectors.images import test_inputs


def by_translation(training: Training) -> Row:
    """`vse.model` on test captions that translators of `vse.translate` have translated into a language it reads.

    Raises:
        RecipeError: the recipe trains no such translator.
    """
    recipe, settings = training.recipe, training.settings
    known, translators = training.translators(), dict[str, Job]()
    for translation, (system, direction) in settings.translations.items():
        if (title := f"{system}-{direction}") not in known:
            recipe_name = recipe.augment.captions or recipe.augment.translators
            raise RecipeError(f"vse.translate is {translation!r}, but {recipe_name} trains no {title}")
        translators[direction] = known[title]
    trained = training.train(settings.model)
    titles = "+".join(translation.replace(":", "-") for translation in settings.translations)
    name = f"search-{titles}-{settings.model}-{training.name}-{training.seed}"
    job = translated_job(name, trained, training, translators)
    target_of = dict(direction.split("-") for direction in translators)
    unseen = {
        source for source, target in target_of.items() if target not in training.languages
    }  # it reads the translation
    return training.row(job, [trained], f"{settings.model} by {', '.join(settings.translations)}", target_of, unseen)


def translated_job(name: str, trained: Job, training: Training, translators: Mapping[str, Job]) -> Job:
    """Translate-search: test captions are translated, and a model of the other language ranks them.

    The figures are those of the language that is translated, queries and gallery. The translations are kept beside
    them. A translator gets no picture: a query has none.

    Args:
        training: of the row, with the recipe that says how translators search.
        translators: direction → the job that trains its translator; directions have different sources.

    Raises:
        RecipeError: a test image has no caption in such a language, so the gallery would be another one.
    """
    settings, beam, several = training.settings, training.recipe.augment, len(translators) > 1
    place_of = {direction: f"translator-{direction}" if several else "translator" for direction in translators}
    plain: dict[str, Any] = {"directions": list(translators)} if several else {"direction": next(iter(translators))}
    plain |= {"beam_size": beam.beam_size, "length_penalty": beam.length_penalty}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the translations, and the ranks of them."""
        refuse_seen_images(inputs)
        tables, ranks = [], {}
        for direction, place in place_of.items():
            source, target = direction.split("-")
            test = open_test(inputs, [target], settings)
            rows = _to_translate(test.captions, source, name)
            network, bpe = load_translator(inputs[place])
            translations = translate_all(
                network, bpe, bpe.encode_all([row["text"] for row in rows], source), [None] * len(rows), None, target,
                BeamSettings(beam.beam_size, beam.length_penalty), beam.batch_tokens, settings.trainer,
            )  # fmt: skip
            translated = [
                row | {"language": target, "text": best.text}
                for row, (best, *_) in zip(rows, translations, strict=True)
            ]
            tables.append(Table.from_list(translated, features=test.captions.features))
            _, encoded = encode_split(test._replace(captions=tables[-1]))
            ranks[source] = encoded[target].ranks()
        write_captions((Caption(**row) for table in tables for row in table.to_list()), folder / "translated.parquet")
        return {"test": write_ranks(folder, ranks)}

    inputs = test_inputs(trained, training.corpus)
    inputs |= {place_of[direction]: job for direction, job in translators.items()}
    inputs |= lenders_of(list(translators.values()), training.corpus)
    return ranking_job(name, inputs, plain, run, settings)


def _to_translate(captions: Table, language: str, name: str) -> list[dict[str, Any]]:
    """The human test captions in a language, of which each test image must have one."""
    tested = [row for row in captions.to_list() if row["split"] == "test" and row["source"] == HUMAN]
    rows = [row for row in tested if row["language"] == language]
    if lacking := {row["image_id"] for row in tested} - {row["image_id"] for row in rows}:
        first = min(lacking)
        raise RecipeError(f"{name}: {len(lacking)} test images have no caption in {language!r}, first {first!r}")
    return rows
