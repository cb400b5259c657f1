"""What a retrieval model reads of sentences: its text input, what its word vectors start from, sentence vectors."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset as Table
from numpy.typing import NDArray

from data.batches.taught import taught_texts
from data.captions.table import choose, read_captions
from data.lines import WORD_VECTORS
from data.text.text_inputs import PretrainedTokens, TextInput, WordVocabulary, tokens_of, words_of_all
from data.vectors.published_vectors import read_vectors
from data.vectors.sentence_vectors import KnownSentences, compute_vectors
from data.vectors.word_vectors import train_vectors
from modules.pretrained.dual_network import dual_network_arguments
from modules.pretrained.hub import revision_of
from modules.pretrained.pretrained_text import SentenceVectors
from modules.retrieval_models import RetrievalModel, model_class
from pipeline.engine.console import debug, info, status
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.retrieval_settings import VseSettings, slots_in
from pipeline.recipes.settings import Recipe
from pipeline.training.model_files import device_of

_MOST_A_LETTER = 4  # sub-words of a letter, which a tokenizer of bytes may need
_READ_BY_TRANSFORMERS = {
    "pretrained": (".json", ".txt", ".model", ".safetensors", ".bin"),
    "image_encoder": (".json", ".safetensors", ".bin"),
}


def text_input(
    settings: VseSettings, captions: Table, types: Collection[str], folder: Path, inputs: Mapping[str, Path]
) -> TextInput:
    """The words of training captions of these types (`en/human`), or a pretrained model's; saved in a job's folder.

    Args:
        captions: all that are trained and tested on.
        types: of the training captions.
        inputs: of the job; those that hold sentence vectors are looked into.

    Raises:
        DataError: there is no such tokenizer, sentence vectors are damaged, or a caption has none.
    """
    if settings.pretrained is not None:
        on_network = model_class(settings.model).on_network
        tokens = _tokens(settings.pretrained, on_network)
        tokens.save(folder / "words.json")
        if on_network:
            read = {caption_type.partition("/")[0] for caption_type in types} | set(settings.test)
            _say_cut(captions, tokens, read)
        if not (folders := [path for name, path in inputs.items() if name.startswith(_INPUT)]):
            return tokens
        sentences = KnownSentences(tokens, folders)
        sentences.require(captions)
        return sentences
    training = _training_text(captions, types)
    vocabulary = WordVocabulary.count(*training, settings.min_count, settings.share_words, settings.segment)
    vocabulary.save(folder / "words.json")
    return vocabulary


def _say_cut(captions: Table, tokens: PretrainedTokens, languages: Collection[str]) -> None:
    """Print a warning if captions in some languages are longer than a dual encoder reads."""
    columns = (captions[name][:] for name in ("caption_id", "language", "text"))
    long = [
        name for name, language, text in zip(*columns, strict=True)
        if language in languages and _MOST_A_LETTER * len(text) > tokens.longest and tokens.size(text) > tokens.longest
    ]  # fmt: skip
    if long:
        info(f"  warning: {len(long):,} captions are longer than the {tokens.longest} sub-words that the network "
             f"reads, and are cut; first {long[0]!r}")  # fmt: skip


def _tokens(name: str, of_network: bool) -> PretrainedTokens:
    """The sub-words of a text model, or of a dual encoder, which reads them in its own way."""
    if not of_network:
        return PretrainedTokens(name)
    read = dual_network_arguments(name)["text"]
    return PretrainedTokens(name, read["longest"], read["lower"])


def start_words(
    model: RetrievalModel, settings: VseSettings, captions: Table, types: Collection[str], text: TextInput,
    folder: Path,
) -> dict[str, Any]:  # fmt: skip
    """Let the word vectors of a model start as the settings say, instead of at random; or look sentences up.

    Args:
        model: new, its word vectors random.
        settings: with `word_vectors` of the languages of the training captions, as `vectors_of_row` gives them.
        types: of the training captions, `en/human`.
        folder: of the job, where vectors that were trained are kept.

    Returns:
        `word_vectors`: by language (by the languages, if they share their words), how many `words` of the vocabulary
        there are and how many the file has (`found`). Nothing where no file was read.

    Raises:
        DataError: a file does not have such vectors, or fastText failed.
    """
    if settings.words == "fasttext":
        model.set_word_vectors(_trained_vectors(settings, captions, types, text, folder))
    if isinstance(text, KnownSentences):
        model.look_up_sentences(text.vectors, len(text))
    if not settings.word_vectors:
        return {}
    assert isinstance(text, WordVocabulary)
    read = {caption_type.partition("/")[0] for caption_type in types}
    if lacking := sorted(read - settings.word_vectors.keys()):
        info(f"  warning: vse.word_vectors names no file of {', '.join(lacking)}; these words start at random")
    languages = [tuple(settings.word_vectors)] if text.shared else [(language,) for language in settings.word_vectors]
    return {"word_vectors": {", ".join(own): _start(model, settings, text, own[0]) for own in languages}}


def files_read(settings: VseSettings, workspace: Workspace) -> dict[str, Any]:
    """What stands for files in the key of a job that reads them: their contents.

    Returns:
        `pretrained` and `image_encoder`, of pretrained models in local folders, or on the hub, then with the revision;
        `word_vectors` by language, if there are such files.
    """
    fingerprints: dict[str, Any] = {}
    for part, suffixes in _READ_BY_TRANSFORMERS.items():
        name = getattr(settings, part)
        if name is not None and Path(name).is_dir():
            files = sorted(path for path in Path(name).iterdir() if path.suffix in suffixes)
            fingerprints[part] = workspace.fingerprint(files)
        elif name is not None and (revision := revision_of(name)) is not None:
            fingerprints[part] = f"{name}@{revision}"
    if settings.word_vectors:
        fingerprints["word_vectors"] = {
            language: workspace.fingerprint([Path(file)]) for language, file in settings.word_vectors.items()
        }
    return fingerprints


def vectors_of_row(recipe: Recipe, settings: VseSettings, row: str, languages: Collection[str]) -> dict[str, str]:
    """Files of `vse.word_vectors`, below the recipe's data root, of the languages that a row is trained on.

    Raises:
        RecipeError: they share words that are written alike, which would have several vectors; or a file is missing.
    """
    own = {language: file for language, file in settings.word_vectors.items() if language in languages}
    if own and settings.share_words and (len(own) < len(languages) or len(set(own.values())) > 1):
        raise RecipeError(
            f"vse.rows.{row} reads {', '.join(sorted(languages))}, which share words that are written alike, but "
            "vse.word_vectors does not name one file for all of them; set vse.share_words=false"
        )
    return {language: str(_file_of(recipe, language, Path(file))) for language, file in own.items()}


def require_read(settings: VseSettings) -> None:
    """Refuse word vectors of a language that no row reads."""
    if not settings.word_vectors:
        return
    known = {slot.language for row in settings.rows for slot in slots_in(settings.rows[row])}
    if unread := sorted(settings.word_vectors.keys() - known):
        raise RecipeError(
            f"vse.word_vectors names {unread[0]!r}, but vse.rows reads {', '.join(sorted(known))} alone; leave it out"
        )


def _file_of(recipe: Recipe, language: str, path: Path) -> Path:
    if recipe.corpus.root is None and not path.is_absolute():
        raise RecipeError(f"vse.word_vectors.{language} is {path}, but there is no data root; set BILDWORT_DATA=FOLDER "
                          "or give the whole path")  # fmt: skip
    path = Path(recipe.corpus.root or "") / path
    if not path.is_file():
        raise RecipeError(f"vse.word_vectors.{language}: {path}: no such file; expected word vectors "
                          f"({', '.join(WORD_VECTORS)})")  # fmt: skip
    return path


def _start(model: RetrievalModel, settings: VseSettings, text: WordVocabulary, language: str) -> dict[str, int]:
    """Start the words of a language from its file, the others stay as they are."""
    path, words = Path(settings.word_vectors[language]), text.words_of(language)
    with status(f"reading {path}"):
        file_vectors = read_vectors(path, words, settings.word_dim)
    model.set_word_vectors(torch.from_numpy(file_vectors.vectors), torch.from_numpy(file_vectors.numbers))
    for warning in file_vectors.warnings:
        info(f"  warning: {warning}")
    said = f"{len(file_vectors.numbers):,} of {len(words):,} words of the vocabulary are in {path}"
    if 2 * len(file_vectors.numbers) < len(words):
        info(f"  warning: only {said}; is it a file of {language!r}? the others start at random")
    else:
        debug(f"  {said}")
    return {"words": len(words), "found": len(file_vectors.numbers)}


def _trained_vectors(
    settings: VseSettings, captions: Table, types: Collection[str], text: TextInput, folder: Path
) -> torch.Tensor:
    """fastText vectors of the vocabulary, trained once on the row's training captions and kept in its folder."""
    assert isinstance(text, WordVocabulary)
    path = folder / "vectors.npy"
    if not path.is_file():
        temporary = path.with_name("half.npy")  # one that is cut short must not be read
        tokens, languages = _training_text(captions, types)
        words = words_of_all(tokens, languages, text.by)
        train_vectors(words, languages, text.words, settings.word_dim, temporary)
        temporary.replace(path)
    return torch.from_numpy(np.load(path, allow_pickle=False))


def _training_text(captions: Table, types: Collection[str]) -> tuple[list[str], list[str]]:
    """Tokens and languages of the training captions of some types."""
    training = choose(captions, "train", types)
    return tokens_of(training), training["language"][:]


VERSION = 1
_INPUT = "sentences-"


def sentence_jobs(
    settings: VseSettings, model_files: str | None, tables: Mapping[str, Job], taught: Mapping[str, Job]
) -> dict[str, Job]:
    """What a training reads beside its captions: a job for each table of them; none without sentence vectors.

    Args:
        model_files: what stands for the text model's files (`files_read`), if that is known.
        tables: the jobs that leave the caption tables (`captions.parquet`), by the names of a training's inputs.
        taught: the jobs that leave sentences without pictures (`pipeline.vectors.teaching.taught_jobs`).

    Returns:
        input `sentences-<name of the input>` → job.
    """
    if settings.pretrained is None or settings.pretrained_vectors != "sentences":
        return {}
    jobs = {name: _vectors_job(settings, model_files, table, _captions) for name, table in tables.items()}
    jobs |= {name: _vectors_job(settings, model_files, pairs, taught_texts) for name, pairs in taught.items()}
    return {_INPUT + name: job for name, job in jobs.items()}


def _captions(folder: Path) -> list[str]:
    return list(read_captions(folder / "captions.parquet")["text"][:])


def _vectors_job(
    settings: VseSettings, model_files: str | None, table: Job, texts: Callable[[Path], list[str]]
) -> Job:  # fmt: skip
    name, layer = str(settings.pretrained), settings.pretrained_layer

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Encode every different sentence, and leave the vectors."""
        tokens, model, device = PretrainedTokens(name), SentenceVectors(name, layer), device_of(settings.trainer)

        def encode(batch: torch.Tensor) -> NDArray[np.float32]:
            """Vectors (B, E) of tokens (B, L)."""
            vectors: NDArray[np.float32] = model.encode(batch.to(device)).cpu().numpy()
            return vectors

        sentences = texts(inputs["captions"])
        count = compute_vectors(sentences, partial(tokens.encode, language=""), encode, folder, folder / "checkpoints")
        return {"sentences": count, "dim": model.embedding_dim}

    plain = {"pretrained": model_files or name, "layer": layer, "pooling": "mean"}
    return Job(
        f"sentences-{table.name}", "vse", VERSION, plain, {"captions": table}, run,
        headline=lambda figures: f"vectors of {figures['sentences']:,} sentences",
    )  # fmt: skip
