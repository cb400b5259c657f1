"""The model card of an exported model: what it is, its figures, how it is used; with the hub's metadata."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from data.batches.taught import TEXT
from data.captions.table import HUMAN
from pipeline.export.picture_reading import BY_NETWORK, PIXELS, VISION
from pipeline.recipes.overlays import captioner_network
from pipeline.recipes.retrieval_settings import slots_in
from pipeline.recipes.settings import AugmentSettings, Recipe
from pipeline.recipes.systems import CAPTION, parse_path
from pipeline.visualization.pages import render

_WAYS = {"t2i": "text-to-image", "i2t": "image-to-text"}
_METRICS = [(f"recall_at_{k}", f"{title} R@{k}", f"{way}_r{k}") for way, title in _WAYS.items() for k in (1, 5, 10)]
_METRICS.append(("mean_recall", "mean recall", "mean_recall"))
_PLAIN = {"en": "a dog runs", "de": "ein Hund rennt", "fr": "un chien court", "cs": "pes běží"}


def shown_name(network: str | None) -> str | None:
    """A network's name on the hub, or that of its folder without where it lies."""
    return network if network is None or _on_hub(network) else Path(network).name


def _on_hub(network: str) -> bool:
    """Is a network's name no folder's, whether the folder is still there or not?"""
    return not (Path(network).is_absolute() or Path(network).exists())


def model_card(
    recipe: Recipe, about: Mapping[str, Any], corpus: Mapping[str, Any], translators: Sequence[str], *,
    single: bool = True, parameters: int | None = None, hub_name: str | None = None,
) -> str:  # fmt: skip
    """The model card.

    Args:
        recipe: with the settings of the model's row.
        about: what `model.json` says of it.
        corpus: task, tasks of languages and label, as `about_corpus` gives them.
        single: it has one vector an item.
        parameters: how many; None: not said.
        hub_name: `USER/NAME`, where it will be; None: a folder.
    """
    types = {(slot.language, slot.source) for slot in slots_in(recipe.vse.rows[about["row"]])}
    return render(
        "model_card.md", recipe=recipe, about=about, corpus=corpus, translators=translators, single=single,
        parameters=parameters, place=hub_name or "this folder", front=_front_matter(recipe, about, corpus["label"]),
        captions=[_learned(*of, recipe.augment) for of in sorted(types)], reads=_reads(recipe, about["regions"]),
        figures=_figures(about["languages"], about["test"], corpus),
        example=_PLAIN.get(about["languages"][-1], _PLAIN["en"]), written=any(source != HUMAN for _, source in types),
    )  # fmt: skip


def _figures(
    languages: Collection[str], test: Mapping[str, Mapping[str, float]], corpus: Mapping[str, Any]
) -> Iterator[str]:
    """A row of the table for each tested language."""
    of_language = corpus.get("tasks", {})
    for language, scores in test.items():
        ways = [" / ".join(f"{scores[f'{way}_r{k}']:.1f}" for k in (1, 5, 10)) for way in _WAYS]
        note = f" ({of_language.get(language, corpus['task'])})" if of_language else ""
        note += "" if language in languages else " (not trained on it)"
        yield f"| {language}{note} | {ways[0]} | {ways[1]} | {scores['mean_recall']:.1f} |"


def _reads(recipe: Recipe, regions: Mapping[str, Any] | None) -> str:
    """What the model reads of an image."""
    if not regions:
        return "It reads region features that were made elsewhere: it searches a region store, not pixels."
    if regions.get(PIXELS) or regions.get(BY_NETWORK):
        return "It reads pictures, from pixels, by an image encoder of its own."
    by = f"{shown_name(recipe.regions.model)} (`{VISION}/`)" if regions["model"] else "the built-in extractor"
    return f"It reads pictures, from pixels: regions are found by {by}."


def _front_matter(recipe: Recipe, about: Mapping[str, Any], corpus: str) -> str:
    """The card's metadata in the hub's form, the test figures as its `model-index`."""
    from huggingface_hub import EvalResult, ModelCardData

    dataset = re.sub(r"[^a-z0-9]+", "-", corpus.lower()).strip("-") or recipe.corpus.name
    results = [
        EvalResult(
            task_type="image-text-retrieval", task_name=f"image-text retrieval, {language}", dataset_type=dataset,
            dataset_name=corpus, dataset_config=language, dataset_split="test", metric_type=kind, metric_name=title,
            metric_value=round(scores[figure], 1),
        )
        for language, scores in about["test"].items()
        for kind, title, figure in _METRICS
    ]  # fmt: skip
    bases = [recipe.vse.pretrained, recipe.vse.image_encoder, recipe.regions.model]
    metadata = ModelCardData(
        language=about["languages"], license=about["license"] or "unknown", library_name="bildwort",
        pipeline_tag="feature-extraction",
        tags=["image-text-retrieval", "bildwort", *(["multilingual"] if len(about["languages"]) > 1 else [])],
        base_model=[base for base in bases if base and _on_hub(base)] or None,
        datasets=[dataset], metrics=["recall"],
        model_name=about["name"], eval_results=results,
    )  # fmt: skip
    return str(metadata.to_yaml(line_break="\n"))


def _learned(language: str, source: str, augment: AugmentSettings) -> str:
    """What captions of a language and source are."""
    if source.startswith(TEXT):
        return f"{language} sentences without pictures ({source.removeprefix(TEXT)}), by a teacher's vectors"
    return f"{language} captions by {_writer(source, augment)}"


def _writer(source: str, augment: AugmentSettings) -> str:
    """Who wrote the captions of a source."""
    captioner = "a retrieval model" if captioner_network(augment) is None else "a vision-language model"
    kind = captioner if parse_path(source)[0] == CAPTION else "a translator"
    return "people" if source == HUMAN else f"{kind} ({source})"
