"""Back-translation: sentences of the target language alone are given a source by the opposite translator."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data.captions.table import read_pairs
from data.text.tokenisation import JointBPE
from modules.translators.beam import BeamSettings
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.recipes.translator_settings import MmtSettings
from pipeline.translation.leakage import lenders_of, refuse_seen_images
from pipeline.translation.parallel_text import BACK
from pipeline.translation.translating import TranslationMemory, translate_all, translator_identity
from pipeline.translation.translator_files import load_translator

VERSION = 1


def back_translation_job(settings: MmtSettings, direction: str, corpus: Job, text: Job, translator: Job) -> Job:
    """The job that leaves synthetic source sentences for `ParallelText` (Sennrich et al. 2016).

    Human sentences are the targets, synthetic ones the sources.

    Args:
        settings: of the translators that will read them; the search is theirs.
        corpus: with training sentences of the target language alone.
        text: the vocabulary that the new sentences are written in.
        translator: of the opposite direction, that needs no picture.
    """
    source, target = direction.split("-")
    search = BeamSettings(beam_size=settings.beam_size, length_penalty=settings.length_penalty)

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Translate, and leave `back.parquet`."""
        refuse_seen_images(inputs)
        rows = [
            row for row in read_pairs(inputs["corpus"] / "pairs.parquet")
            if row["split"] == "train" and row.get(target) and not row.get(source)
        ]  # fmt: skip
        if not rows:
            raise RecipeError(
                f"mmt.back_translate.{direction}: no training sentence in {target!r} lacks its {source!r}; let the "
                f"corpus bring some (corpus.monolingual: [{target}])"
            )
        network, bpe = load_translator(inputs["translator"])
        translations = translate_all(
            network, bpe, bpe.encode_all([row[target] for row in rows], target), [None] * len(rows), None, source,
            search, settings.batch_tokens, settings.trainer, kept=folder / "checkpoints",
            memory=TranslationMemory(folder, translator_identity(inputs["translator"])),
        )  # fmt: skip
        new = {
            row["pair_id"]: best.text for row, (best, *_) in zip(rows, translations, strict=True) if best.text.strip()
        }
        tokens = JointBPE.load(inputs["text"] / "bpe.json").encode_all(list(new.values()), source)
        columns = {"pair_id": list(new), "text": list(new.values()), "tokens": tokens}
        pq.write_table(pa.table(columns), folder / BACK)
        return {"sentences": len(new), "empty": len(rows) - len(new)}

    plain = {"direction": direction, "beam_size": search.beam_size, "length_penalty": search.length_penalty}
    if (precision := settings.trainer.precision) != "bf16-mixed":  # in which the first results were recorded
        plain["precision"] = precision
    inputs = {"corpus": corpus, "text": text, "translator": translator} | lenders_of([translator], corpus)
    return Job(
        f"back-{direction}", "mmt", VERSION, plain, inputs, run, True, asdict(settings.trainer),
        lambda figures: f"{figures['sentences']:,} sentences",
    )  # fmt: skip
