"""The model card of an exported model: what it is, its figures, how it is used; with the hub's metadata."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from data.captions import HUMAN
from data.slots import parse_group
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import CAPTION, parse_path
from pipeline.retrieval.rows import Row
from pipeline.search.exported_model import ABOUT, RERANKER, TRANSLATORS
from pipeline.search.picture_reading import PIXELS, VISION

_CARD = """---
{front}---

# {name}

Finds pictures from words and words from pictures, in {language_list}. Trained by Bildwort's recipe `{recipe}`
(`recipe.yaml`) on {corpus}: {captions}.

{reads}{interprets} Set `license` above before you share it: it depends on the corpus.

## Figures

R@K in percent on {corpus}, test.

| language | text→image R@1 / 5 / 10 | image→text R@1 / 5 / 10 | mean recall |
|---|---|---|---|
{figures}

## Use

```python
from pipeline.search.exported_model import ExportedModel

exported = ExportedModel.load("this folder")
vectors = exported.encode_captions(["{example}"]).single()
```

Weights are safetensors; no file here is a pickle. `{about}` has a digest of each, and they are checked when loaded.
"""
_PLAIN = {"en": "a dog runs", "de": "ein Hund rennt", "fr": "un chien court", "cs": "pes běží"}


def languages_of(recipe: Recipe, row: Row) -> list[str]:
    """Those that the row was trained on."""
    return sorted({slot.language for text in recipe.vse.rows[row.name] for slot in parse_group(text)})


def shown_name(network: str | None) -> str | None:
    """A network's name on the hub, or that of its folder without where it lies."""
    return Path(network).name if network is not None and Path(network).exists() else network


def model_card(
    recipe: Recipe, row: Row, name: str, languages: list[str], test: Mapping[str, Mapping[str, float]],
    corpus: Mapping[str, Any], regions: Mapping[str, Any] | None, translators: Sequence[str],
    reranker: Mapping[str, Any] | None,
) -> str:  # fmt: skip
    """The model card."""
    types = {(slot.language, slot.source) for text in recipe.vse.rows[row.name] for slot in parse_group(text)}
    captions = ", ".join(f"{language} captions by {_writer(source)}" for language, source in sorted(types))
    lines, of_language = [], corpus.get("tasks", {})
    for language, scores in test.items():
        ways = [" / ".join(f"{scores[f'{way}_r{k}']:.1f}" for k in (1, 5, 10)) for way in ("t2i", "i2t")]
        note = f" ({of_language.get(language, corpus['task'])})" if of_language else ""
        note += "" if language in languages else " (not trained on it)"
        lines.append(f"| {language}{note} | {ways[0]} | {ways[1]} | {scores['mean_recall']:.1f} |")
    reads = (
        "It reads pictures, from pixels, by an image encoder of its own." if regions and regions.get(PIXELS) else
        "It reads pictures, from pixels: regions are found by " + (
            f"{shown_name(recipe.regions.model)} (`{VISION}/`)." if regions["model"] else "the built-in extractor."
        ) if regions else
        "It reads region features that were made elsewhere: it searches a region store, not pixels."
    )  # fmt: skip
    interprets = f" It brings translators: {', '.join(translators)} (`{TRANSLATORS}/`)." if translators else ""
    if reranker is not None:
        right = ", ".join(f"{one} {scores['t2i_r1']:.1f} %" for one, scores in reranker["test"].items())
        interprets += (
            f" A second model, {reranker['name']} (`{RERANKER}/`), reranks the first {reranker['first_k']} results; "
            f"with it R@1 from text to image on test is {right}."
        )
    return _CARD.format(
        front=_front_matter(name, languages, test, corpus["label"]), name=name,
        language_list=", ".join(languages), recipe=recipe.name, corpus=corpus["label"], captions=captions,
        reads=reads, interprets=interprets, figures="\n".join(lines),
        about=ABOUT, example=_PLAIN.get(languages[-1], _PLAIN["en"]),
    )  # fmt: skip


def _front_matter(name: str, languages: list[str], test: Mapping[str, Mapping[str, float]], corpus: str) -> str:
    """The card's metadata in the hub's form, the test figures as its `model-index`."""
    dataset = {"name": corpus, "type": corpus, "split": "test"}
    results = [
        {"task": {"type": "image-text-retrieval", "name": f"{task} retrieval, {language}"}, "dataset": dataset,
         "metrics": [{"type": f"recall_at_{k}", "name": f"R@{k}", "value": round(scores[f"{way}_r{k}"], 1)}
                     for k in (1, 5, 10)]}
        for language, scores in test.items()
        for way, task in (("t2i", "text-to-image"), ("i2t", "image-to-text"))
    ]  # fmt: skip
    metadata = {
        "language": languages, "license": "unknown", "library_name": "bildwort",
        "tags": ["image-text-retrieval", "multilingual", "bildwort"],
        "model-index": [{"name": name, "results": results}],
    }  # fmt: skip
    return str(yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=1000))


def _writer(source: str) -> str:
    """Who wrote the captions of a source."""
    kind = "a retrieval model" if parse_path(source)[0] == CAPTION else "a translator"
    return "people" if source == HUMAN else f"{kind} ({source})"
