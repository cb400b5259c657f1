"""Translating many sentences with a finished translator, which goes on after a stop where it was."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytorch_lightning as pl
from pytorch_lightning.callbacks import Callback

from data.batches.translation import Sentences, in_order_loader
from data.pictures.device_regions import free_memory
from data.pictures.pixels import files_of
from data.pictures.regions import RegionStore
from data.text.tokenisation import BEGIN, END, SubWords, spaced
from modules.distributed import gather_objects
from modules.training.translation import Synthesis
from modules.translators.beam import BeamSettings, Hypothesis
from modules.translators.registry import Search, Searched, reads_pictures
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.artifacts import files_for_later, read_json, read_manifest, read_rows
from pipeline.engine.files import write_atomically
from pipeline.errors import RecipeError
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import make_trainer, stopping
from pipeline.translation.translator_files import PRETRAINED

_MOST_WORDS, _FOR_EACH = 2**14, 4 * 2**30  # that a GPU searches at once; bytes of it for each `batch_tokens` of them


@dataclass(frozen=True)
class Translated:
    """One translation: in surface form, Moses-tokenised; score, features (`modules.translators.beam.Hypothesis`)."""

    text: str
    tokens: str
    score: float
    features: Mapping[str, float] = field(default_factory=dict)


def translate_all(
    translator: Searched, bpe: SubWords, source: Sequence[Sequence[int]], image_ids: Sequence[str | None],
    regions: RegionStore | None, target: str, search: Search, batch_tokens: int, settings: TrainerSettings,
    n_best: int = 1, other_ids: Sequence[str | None] = (), kept: Path | None = None,
    memory: "TranslationMemory | None" = None,
) -> list[list[Translated]]:  # fmt: skip
    """Translate sentences (token numbers) into language `target`, in their order, on all devices of `settings`.

    A text-only translator ignores regions; a vision-language model reads the pictures of their corpus instead.
    `other_ids` are other images, for features that need them. `kept` is a folder where translations are written as
    they are made; a run that finds some there goes on behind them, and ends with the same translations. With a memory,
    a sentence that an earlier job has translated in the same way is not translated again.

    Returns:
        for each sentence its translations, best first, at most `n_best`.

    Raises:
        DataError: a vision-language model lacks the picture of an image, or it cannot be read.
    """
    keeping = [] if kept is None else [KeptTranslations(kept)]
    trainer = make_trainer(settings, callbacks=keeping)
    rank, world = trainer.global_rank, trainer.world_size
    synthesis = Synthesis(translator.eval(), search, BEGIN, END, n_best)
    with_text_alone = translator.regions is None and not reads_pictures(translator) and isinstance(search, BeamSettings)
    memory = memory if with_text_alone and world == 1 else None
    known = {} if memory is None else memory.recall(source, search, n_best, settings.precision)
    synthesis.found = dict(known)
    for callback in keeping:
        synthesis.found |= callback.read(rank, world)
        callback.written = len(synthesis.found)
    pictures = _pictures(regions, image_ids) if regions is not None and reads_pictures(translator) else None
    regions = regions if translator.regions is not None else None
    sentences = Sentences(source, None, image_ids, other_ids, pictures)
    batch_tokens *= _times(translator, trainer, batch_tokens)
    loader = in_order_loader(sentences, regions, batch_tokens, rank, world, synthesis.found, known)
    with stopping():
        trainer.predict(synthesis, loader, return_predictions=False)
    hypotheses = dict(gather_objects(list(synthesis.found.items()), world))
    if memory is not None:
        memory.keep(source, hypotheses)
    return [[_read(hypothesis, bpe, target) for hypothesis in hypotheses[number]] for number in range(len(source))]


def _times(translator: Searched, trainer: pl.Trainer, batch_tokens: int) -> int:
    """How many times `batch_tokens` a GPU searches at once with a translator of ours, by its free memory.

    It takes little longer for them, as it waits for the host's next call most of the time. Where somebody wants more
    than `_MOST_WORDS`, it is left at that.
    """
    device = trainer.strategy.root_device
    if device.type != "cuda" or not getattr(translator, "has_graphs", False):
        return 1
    room = int(free_memory(device) / _FOR_EACH)
    return max(1, min(room, _MOST_WORDS // batch_tokens))


def _pictures(regions: RegionStore, image_ids: Sequence[str | None]) -> dict[str, Path]:
    """Image id → picture file of images of a prepared corpus, which its regions stand for."""
    named = list(dict.fromkeys(image for image in image_ids if image is not None))
    files = files_of(pictures_of(regions.folder.parent), named, "take a translator that reads none (mt)")
    return dict(zip(named, files, strict=True))


def _read(hypothesis: Hypothesis, bpe: SubWords, target: str) -> Translated:
    tokens = spaced(bpe.decode_tokens(hypothesis.tokens), target)
    return Translated(bpe.decode(hypothesis.tokens, target), tokens, hypothesis.score, hypothesis.features)


EVERY = 60.0  # seconds between two files


class KeptTranslations(Callback):
    """Writes new translations to a file every minute; a line is a sentence's number and its hypotheses.

    Each rank has files of its own, which hold for the same number of ranks alone: they decide which sentences are
    translated together.

    Args:
        folder: where; in a job a folder that is deleted when the job is done.

    Attributes:
        written: how many translations are in files, or were known before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()  # for ranks above 0 it is a link to that of rank 0, which may not be there yet
        self.prefix = ""
        self.written, self._last = 0, time.monotonic()

    def read(self, rank: int, world_size: int) -> dict[int, list[Hypothesis]]:
        """What a run before has translated, by the sentence's number; later files are this rank's too.

        Raises:
            RecipeError: a file is damaged.
        """
        self.prefix = f"translated-{rank}-of-{world_size}-"
        hypotheses: dict[int, list[Hypothesis]] = {}
        for path in sorted(self.folder.glob(f"{self.prefix}*.jsonl")):
            try:
                lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
                hypotheses |= {number: [Hypothesis(**fields) for fields in best] for number, best in lines}
            except (OSError, ValueError, TypeError, RecursionError) as error:
                raise RecipeError(f"{path}: not readable ({error}); delete it and run again") from None
        return hypotheses

    def on_predict_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Write what is new, if it is time."""
        assert isinstance(pl_module, Synthesis)
        if time.monotonic() - self._last < EVERY:
            return
        new = islice(pl_module.found.items(), self.written, None)
        lines = [json.dumps([number, [asdict(hypothesis) for hypothesis in best]]) for number, best in new]
        write_atomically(
            self.folder / f"{self.prefix}{self.written:012d}.jsonl", "".join(f"{line}\n" for line in lines)
        )
        self.written, self._last = len(pl_module.found), time.monotonic()


class TranslationMemory:
    """The translations that a job leaves for later jobs, which find them by their sentence.

    Where a caption of a corpus was edited, all others keep their translations. They are found if translator, search,
    precision, code and libraries are the same; new ones may differ from them by rounding, as other sentences were
    translated with them. Only beam search by a translator that reads text alone, on one process, has a memory.

    Args:
        translator: names a translator and its weights (`translator_identity`).

    Attributes:
        recalled: how many translations were found.
    """

    def __init__(self, folder: Path, translator: str) -> None:
        self.folder, self.translator, self.recalled = folder, translator, 0
        self._file = folder

    def recall(
        self, source: Sequence[Sequence[int]], search: Search, n_best: int, precision: str
    ) -> dict[int, list[Hypothesis]]:
        """The translations that finished jobs left of these sentences (token numbers), by the sentence's number."""
        made_by = self.translator, asdict(search), n_best, precision
        self._file, earlier = files_for_later(self.folder, "translations.parquet", *made_by)
        wanted, known = {_key(sentence) for sentence in source}, dict[str, list[Hypothesis]]()
        for path in earlier:
            with suppress(RecipeError, ValueError, TypeError):  # damaged
                known |= {
                    sentence: [Hypothesis(**fields) for fields in json.loads(best)]
                    for sentence, best in self._rows(path) if sentence in wanted
                }  # fmt: skip
        found = {number: known[key] for number, key in enumerate(map(_key, source)) if key in known}
        self.recalled += len(found)
        return found

    def keep(self, source: Sequence[Sequence[int]], hypotheses: Mapping[int, Sequence[Hypothesis]]) -> None:
        """Leave the translations of the sentences that `recall` was last asked for."""
        rows = {
            _key(sentence): json.dumps([asdict(hypothesis) for hypothesis in hypotheses[number]])
            for number, sentence in enumerate(source)
        }
        with suppress(RecipeError):  # there is none, or one that a stop damaged
            rows = dict(self._rows(self._file)) | rows
        buffer = pa.BufferOutputStream()
        pq.write_table(pa.table({"source": list(rows), "translations": list(rows.values())}), buffer)
        write_atomically(self._file, buffer.getvalue().to_pybytes())

    @staticmethod
    def _rows(path: Path) -> Iterator[tuple[str, str]]:
        """Sentences and their translations in a file; raises as `read_rows`."""
        table = read_rows(path, ["source", "translations"])
        yield from zip(*(table[name].to_pylist() for name in table.column_names), strict=True)


def _key(sentence: Sequence[int]) -> str:
    return " ".join(map(str, sentence))


def translator_identity(folder: Path) -> str:
    """What names a finished translator: its key and when it was finished, or what `identity_of_pretrained` gives.

    Raises:
        RecipeError: its manifest is damaged.
    """
    about = read_manifest(folder)
    network = about["settings"].get(PRETRAINED)
    own = f"{about['key']} {about['finished']}"  # with --force, another run has the same key
    return own if network is None else identity_of_pretrained(network, folder)


def identity_of_pretrained(network: Mapping[str, Any], folder: Path) -> str:
    """What names a pretrained translator, whatever the corpus: its settings, and the commit in the job's folder.

    Args:
        network: its settings in the key of its job, with a digest of the files of a folder.
        folder: of that job, with `network.json`.
    """
    return json.dumps([network, read_json(folder / "network.json")], sort_keys=True)
