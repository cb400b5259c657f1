"""Testing a finished translator: its translations of validation, test and twins, and their scores."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.batches.parallel_text import ParallelText
from data.text.characters import lowered
from data.text.language_codes import UNSPACED
from data.text.tokenisation import SubWords, tokenize, words_of
from modules.metrics.translation import ambiguity_scores, translation_scores
from modules.translators.beam import BeamSettings
from modules.translators.registry import Searched, reads_pictures
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.artifacts import read_rows
from pipeline.recipes.settings import Recipe
from pipeline.recipes.translator_settings import MmtSettings
from pipeline.training.trainer import log_folder
from pipeline.translation.translating import Translated, TranslationMemory, translate_all
from pipeline.translation.translator_files import load_translator
from pipeline.visualization.dashboards import log_translations


def translation_headline(figures: Mapping[str, Any]) -> str:
    """BLEU on test (else on validation), and the share of ambiguous words that are right, as text."""
    split, prefix = ("test", "") if "test_bleu" in figures else ("val", "val ")
    shown = [f"{prefix}BLEU {figures[f'{split}_bleu']:.1f}"] if f"{split}_bleu" in figures else []
    if "ambiguous" in figures:
        shown.append(f"ambiguous words {figures['ambiguous']:.0f} %")
    return ", ".join(shown)


def settings_of_test(settings: MmtSettings) -> dict[str, Any]:
    """What changes the translations of a finished translator, for the key of a job that tests it."""
    return {name: getattr(settings, name) for name in ("beam_size", "length_penalty", "without_regions")}


def evaluate_translator(
    recipe: Recipe, folder: Path, pairs: ParallelText, name: str, memory: TranslationMemory | None = None
) -> dict[str, Any]:
    """Translate validation, test and twins by the translator that a job left in a folder.

    The translations are written, and some of the test are shown in TensorBoard.

    Args:
        recipe: says how to search.
        memory: of translations by the same translator; None: all are translated.

    Returns:
        BLEU and the other scores by split, and those of ambiguous words.
    """
    settings, figures = recipe.mmt, dict[str, Any]()
    loaded, of_twins = load_translator(folder), list[tuple[dict[str, Any], Translated]]()
    for split in ("val", "test", "twins"):
        rows = pairs.rows(split, captions=True)
        if not rows:
            continue
        found = translate_rows(loaded, pairs, rows, [row["seen_id"] for row in rows], settings, memory=memory)
        translations = [best for best, *_ in found]
        of_twins = [*zip(rows, translations, strict=True)] if split == "twins" else []
        references = [lowered(row[pairs.target], pairs.target) for row in rows]
        scores = translation_scores(
            [lowered(translation.text, pairs.target) for translation in translations], references,
            [translation.tokens for translation in translations],
            [words_of(text, pairs.target) for text in references], pairs.target in UNSPACED,
        )  # fmt: skip
        figures |= {
            f"{split}_bleu": scores.sacre, f"{split}_bleu_tokenised": scores.tokenised, f"{split}_chrf": scores.chrf,
            f"{split}_ter": scores.ter, "bleu_signature": scores.signature, f"{split}_sentences": len(rows),
        }  # fmt: skip
        _write_translations(folder / f"{split}.parquet", pairs, rows, translations)
    if pairs.twins and pairs.direction == "en-de":
        figures |= _test_twins(loaded, pairs, of_twins, settings)
    if (folder / "test.parquet").is_file():
        tested, pictures = read_translations(folder, "test"), pictures_of(pairs.corpus)
        log_translations(log_folder(recipe, name, folder.name), tested, pictures)
    return figures


def translate_rows(
    loaded: tuple[Searched, SubWords], pairs: ParallelText, rows: Sequence[Mapping[str, Any]],
    images: Sequence[str | None], settings: MmtSettings, size: int | None = None, **more: Any,
) -> list[list[Translated]]:  # fmt: skip
    """Translate rows of `pairs` by what `load_translator` gives, each with an image or (None) without one.

    `size` is the beam's, if it is not `mmt.beam_size`; `more` is for `translate_all`.
    """
    translator, bpe = loaded
    source = bpe.encode_all([row[pairs.source] for row in rows], pairs.source)
    beam = BeamSettings(size or settings.beam_size, settings.length_penalty)
    return translate_all(
        translator, bpe, source, images, pairs.store, pairs.target, beam, settings.batch_tokens, settings.trainer,
        **more,
    )  # fmt: skip


def _test_twins(
    loaded: tuple[Searched, SubWords], pairs: ParallelText, translated: Sequence[tuple[dict[str, Any], Translated]],
    settings: MmtSettings,
) -> dict[str, Any]:  # fmt: skip
    """Ambiguous words of the twin pictures: with the right regions and with the twin's.

    Args:
        translated: rows of the twins, with the right regions.
    """
    twins = {row["image_id"]: row for row in pairs.twins}
    own = [(row, best) for row, best in translated if row["image_id"] in twins]
    rows, right = [row for row, _ in own], [best for _, best in own]
    about = [twins[row["image_id"]] for row in rows]
    reference = {row["image_id"]: tokenize(row["de"], "de") for row in rows}
    network = loaded[0]
    swapped = right  # by one that does not look
    if network.regions is not None or reads_pictures(network):
        found = translate_rows(loaded, pairs, rows, [entry["twin_id"] for entry in about], settings)
        swapped = [best for best, *_ in found]
    figures: dict[str, Any] = {}
    for kind, translations in (("", right), ("swapped_", swapped)):
        scores = ambiguity_scores(
            [translation.tokens for translation in translations], [reference[entry["image_id"]] for entry in about],
            [reference[entry["twin_id"]] for entry in about], [entry["word"] for entry in about],
            [entry["expected"] for entry in about],
        )  # fmt: skip
        figures |= {kind + name: value for name, value in scores.items()}
    return figures


def _write_translations(
    path: Path, pairs: ParallelText, rows: list[dict[str, Any]], translations: list[Translated]
) -> None:
    table = [
        {"pair_id": row["pair_id"], "image_id": row["image_id"], "source": row[pairs.source],
         "reference": row[pairs.target], "hypothesis": translation.text, "tokens": translation.tokens,
         "score": translation.score}
        for row, translation in zip(rows, translations, strict=True)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(table), path)


def read_translations(folder: Path, split: str) -> list[dict[str, Any]]:
    """The translations of a split: rows of pair_id, image_id, source, reference, hypothesis …; see `read_rows`."""
    return list(read_rows(folder / f"{split}.parquet").to_pylist())
