"""The incongruent-image test: each sentence with its own regions, with another image's, and with zeros."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pytorch_lightning.utilities import rank_zero_only
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from data.batches.parallel_text import ParallelText, sentences_of
from data.batches.translation import in_order_loader
from data.pictures.regions import RegionStore
from data.text.tokenisation import JointBPE, words_of
from modules.metrics.ambiguity import ambiguous_words, choices
from modules.metrics.incongruent_images import gains_of_own_images
from modules.translators.noisy_channel import log_likelihoods
from modules.translators.registry import Translator
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.job import Job
from pipeline.recipes.settings import Recipe
from pipeline.training.trainer import log_folder
from pipeline.translation.evaluation import settings_of_test, translate_rows
from pipeline.translation.parallel_text import parallel_text_of
from pipeline.translation.translator_files import load_translator
from pipeline.visualization.attention import AttendedSentence, attention_html, attention_picture
from pipeline.visualization.dashboards import log_picture, plain

VERSION = 4  # 3: intervals over images; 4: a translation is ambiguous by its share of all alignments
SHOWN = ("own", "other", "zeros")
_DRAWN, _LOGGED = 20, 8  # sentences whose attention is drawn, and in TensorBoard


@dataclass(frozen=True)
class _Look:
    """N sentences translated, and their human translations scored, with one kind of image.

    Attributes:
        images: of the sentences; None: zeros.
        tokens: Moses tokens of the translations.
        likelihood: (N, 2) log-probability of each human translation, and its tokens with the end mark.
    """

    images: Sequence[str | None]
    tokens: list[str]
    likelihood: Tensor


def incongruent_job(recipe: Recipe, translator: Job) -> Job:
    """A job that leaves `incongruent.parquet`, a row a sentence, and `attention.html` where there are pictures.

    Figures, for each of `SHOWN`: `…_bleu` (tokenised), `…_loglik` (natural logarithm of the human translation's
    probability, a token) and `…_ambiguous` (% of ambiguous words translated as the human did, where there are any);
    `own-other_…` and `own-zeros_…` are differences, their intervals over images `…_low` and `…_high`. There are none
    where no test sentence has regions. Some of it goes to TensorBoard's folder of the translator.
    """
    settings, direction = recipe.mmt, translator.name.partition("-")[2]

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Translate three times, score, compare and draw."""
        pairs = parallel_text_of(inputs, direction, settings)
        rows = [row for row in pairs.rows("test", captions=True) if row["seen_id"]]
        images = [row["seen_id"] for row in rows]
        if len(set(images)) < 2:
            return {"incongruent_sentences": len(rows)}
        network, bpe = loaded = load_translator(inputs["translator"])
        looks: dict[str, _Look] = {}
        seen_images: tuple[Sequence[str | None], ...] = (images, another(images), [None] * len(rows))
        for name, seen in zip(SHOWN, seen_images, strict=True):
            tokens = [best.tokens for best, *_ in translate_rows(loaded, pairs, rows, seen, settings)]
            likelihood = _likelihood(network, rows, seen, pairs.store, settings.batch_tokens)  # type: ignore[arg-type]
            looks[name] = _Look(seen, tokens, likelihood)
        scores = _scores(pairs, rows, looks)
        _write(folder / "incongruent.parquet", rows, looks)
        pictures = pictures_of(inputs["corpus"])
        if pictures:
            drawn = _attention(network, bpe, pairs, rows, pictures)  # type: ignore[arg-type]
            attention_html(folder / "attention.html", translator.name, drawn, (pairs.source, pairs.target))
            _log(log_folder(recipe, translator.name, translator.key), drawn, pairs, rows, looks)
        return {"incongruent_sentences": len(rows)} | scores

    inputs = {name: translator.inputs[name] for name in ("corpus", "text")} | {"translator": translator}
    return Job(
        f"incongruent-{translator.name}", "mmt", VERSION, settings_of_test(settings), inputs, run, True,
        asdict(settings.trainer), _headline,
    )  # fmt: skip


def _headline(figures: Mapping[str, Any]) -> str:
    if "own-other_bleu" not in figures:
        return ""
    return f"another image changes BLEU by {0.0 - figures['own-other_bleu']:+.1f}"


def another(images: Sequence[str]) -> list[str]:
    """For each sentence the image of another one, always the same and never its own; two images or more."""
    different = sorted(set(images))
    random.Random(0).shuffle(different)
    after = dict(zip(different, different[1:] + different[:1], strict=True))
    return [after[image_id] for image_id in images]


def _likelihood(
    network: Translator, rows: Sequence[dict[str, Any]], images: Sequence[str | None], store: RegionStore,
    batch_tokens: int,
) -> Tensor:  # fmt: skip
    """Log-probability of each human translation, and its tokens with the end mark: (N, 2)."""
    likelihood = torch.zeros(len(rows), 2, dtype=torch.float64)
    for batch in in_order_loader(sentences_of(rows, images), store, batch_tokens):
        likelihood[batch["index"], 0] = log_likelihoods(network, batch).double()
        likelihood[batch["index"], 1] = batch["target_lengths"].double()
    return likelihood


def _scores(pairs: ParallelText, rows: Sequence[dict[str, Any]], looks: Mapping[str, _Look]) -> dict[str, Any]:
    """All figures of the job; ambiguous words are those of the pairs about training pictures, with regions or not."""
    train = [row for row in pairs.rows("train", captions=None) if row["image_id"]]
    source, target = (
        [words_of(row[language], language).split() for row in train] for language in (pairs.source, pairs.target)
    )
    lexicon = ambiguous_words(source, target)
    reference = [words_of(row[pairs.target], pairs.target) for row in rows]
    to_choose = [
        choices(lexicon, words_of(row[pairs.source], pairs.source).split(), human.split())
        for row, human in zip(rows, reference, strict=True)
    ]
    seen = {name: (look.tokens, look.likelihood) for name, look in looks.items()}
    about = {"ambiguous_words": len(lexicon), "choices": sum(map(len, to_choose))}
    return about | gains_of_own_images(seen, reference, to_choose, [row["seen_id"] for row in rows])


def _write(path: Path, rows: Sequence[dict[str, Any]], looks: Mapping[str, _Look]) -> None:
    table = [
        {"pair_id": row["pair_id"]}
        | {f"{name}_image": look.images[place] for name, look in looks.items()}
        | {f"{name}_tokens": look.tokens[place] for name, look in looks.items()}
        | {f"{name}_loglik": float(look.likelihood[place, 0]) for name, look in looks.items()}
        for place, row in enumerate(rows)
    ]
    pq.write_table(pa.Table.from_pylist(table), path)


@rank_zero_only
def _log(
    log_dir: Path, drawn: Sequence[AttendedSentence], pairs: ParallelText, rows: Sequence[dict[str, Any]],
    looks: Mapping[str, _Look],
) -> None:  # fmt: skip
    """Attention on the pictures, and translations that differ with the picture, in TensorBoard."""
    outputs = [
        [row[pairs.source], row[pairs.target], *(look.tokens[place] for look in looks.values())]
        for place, row in enumerate(rows)
    ]
    differ = [texts for texts in outputs if len(set(texts[2:])) > 1]
    lines = ["| source | reference | its own picture | another picture | no picture |", "|" + "---|" * 5]
    for texts in random.Random(0).sample(differ, min(_LOGGED, len(differ))):
        lines.append("| " + " | ".join(plain(text) for text in texts) + " |")
    with SummaryWriter(str(log_dir)) as board:
        board.add_text("translations/with and without the picture", "\n".join(lines))
        for number, sentence in enumerate(drawn[:_LOGGED], 1):
            log_picture(board, f"attention/{number}", attention_picture(sentence))


def _attention(
    network: Translator, bpe: JointBPE, pairs: ParallelText, rows: Sequence[dict[str, Any]], pictures: dict[str, Path]
) -> list[AttendedSentence]:
    """The attention of words to regions while the human translation is read, of sentences drawn at random."""
    rows = [row for row in rows if row["seen_id"] in pictures]
    chosen = random.Random(0).sample(rows, min(_DRAWN, len(rows)))
    sides = {"source": "source_tokens", "target": "target_tokens"}
    seen = []
    for row in chosen:
        (batch,) = in_order_loader(sentences_of([row]), pairs.store, 1)
        with torch.no_grad():
            names = ("source", "source_lengths", "regions", "target", "target_lengths")
            weights = network.look_weights(*(batch[name] for name in names))[0].tolist()
        tokens = [bpe.tokenizer.id_to_token(number) or "" for number in row[sides[network.looks_at]]]
        boxes = pairs.store.boxes[pairs.store.rows([row["seen_id"]])[0]]
        texts, picture = (row[pairs.source], row[pairs.target]), pictures[row["seen_id"]]
        seen.append(AttendedSentence(row["seen_id"], picture, texts, tokens, weights[: len(tokens)], boxes))
    return seen
