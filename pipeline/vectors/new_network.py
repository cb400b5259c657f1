"""The command that writes a small dual encoder with random weights."""

from collections.abc import Sequence
from pathlib import Path

from data.captions.table import human_cells, read_captions
from modules.pretrained.new_network import write_network
from pipeline.corpus.prepare import corpus_job
from pipeline.engine.console import info
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe


def network_of_corpus(
    recipe: Recipe, workspace: Workspace, folder: Path, languages: Sequence[str], side: int, patch: int, width: int,
    layers: int, vocabulary: int,
) -> None:  # fmt: skip
    """`write_network` with a vocabulary of the human training captions of a recipe's corpus in some languages, and the
    recipe's seed.

    Raises:
        RecipeError: the corpus is not prepared, or has no captions in these languages.
        ModelError: as `write_network`.
    """
    corpus = workspace.require(corpus_job(recipe, workspace))
    captions = read_captions(corpus / "captions.parquet")
    texts = [text for language, text in human_cells(captions, "train", "language", "text") if language in languages]
    if not texts:
        raise RecipeError(
            f"--languages {','.join(languages)}: the corpus has no training captions in these; name others"
        )
    count = write_network(folder, texts, side, patch, width, layers, vocabulary, recipe.seed)
    info(f"{folder}: a CLIP of {count:,} parameters with random weights; train it as vse.pretrained={folder}")
