"""Checks of settings that contradict one another or make no sense: one line, before anything runs."""

import difflib
import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from data.lines import WORD_VECTORS
from data.sts import GOLD, INPUT, StsSettings
from pipeline.errors import RecipeError
from pipeline.recipes.bounds import check_bounds, check_file_name
from pipeline.recipes.caption_checks import check_caption_path
from pipeline.recipes.pretrained_checks import check_pretrained, check_pretrained_path, refuse_hub_path
from pipeline.recipes.rerank_checks import check_rerank, needs_retrieval
from pipeline.recipes.settings import MmtSettings, Recipe, TrainerSettings, VseSettings
from pipeline.recipes.systems import CAPTION, CHANNEL, directions_of, members_of, parse_path, parse_system

HIGHEST_RATE = 1.0
"""Of learning rates: with more, no training of ours converges."""


def check(recipe: Recipe, where: str) -> None:
    """Refuse settings that contradict one another; what depends on networks is checked by `check_networks`.

    Tables are not looked into: each of their systems is checked as a recipe of its own.

    Raises:
        RecipeError: two do; it names both, and `where` they stand.
    """
    check_bounds({name: value for name, value in vars(recipe).items() if name != "tables"}, where)
    _check_retrieval_systems(recipe.vse, recipe.mmt, where)
    _check_vse_numbers(recipe.vse, where)
    _check_vse(recipe.vse, where)
    _check_mmt(recipe.mmt, where)
    _check_numbers(recipe, where)
    _check_report(recipe, where)
    _check_paths(recipe, where)
    _check_sts(recipe.sts, where)


def refuse_unknown(values: Any, known: set[str], where: str, prefix: str) -> None:
    """Refuse keys that are not known, and name the nearest.

    Raises:
        RecipeError: there is one, or `values` has no keys.
    """
    if not isinstance(values, Mapping):
        raise RecipeError(f"{where}: {prefix.rstrip('.')} is {values!r}; expected keys with values")
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"known are {', '.join(sorted(known))}"
            raise RecipeError(f"{where}: unknown key {prefix}{key}; {hint}")


def _check_retrieval_systems(vse: VseSettings, mmt: MmtSettings, where: str) -> None:
    """Refuse models that cannot be fused, re-ranked, or searched by translation."""
    if len(vse.ranked_by) > 1:
        raise RecipeError(f"{where}: vse.{' and vse.'.join(vse.ranked_by[:2])} are both set; leave one out")
    if len(vse.fuse) == 1:
        raise RecipeError(f"{where}: vse.fuse has {vse.fuse[0]!r} alone; expected two models or more")
    directions = translations(vse)
    for translation, (system, direction) in directions.items():
        names, reranks = members_of(system)
        blind = system in mmt.systems and all(name in mmt.pretrained or parse_system(name)[0] == "mt" for name in names)
        blind = blind and not needs_retrieval(mmt, reranks)
        known = directions_of(mmt, system)
        if not blind or direction not in known or not set(direction.split("-")) <= set(vse.test):
            raise RecipeError(
                f"{where}: vse.translate is {translation!r}; expected mt:de-en (a query has no picture), its "
                f"direction one of mmt.directions ({', '.join(known)}) and its languages of vse.test"
            )
    sources = {direction.partition("-")[0] for _, direction in directions.values()}
    if isinstance(vse.translate, list) and len(sources) < max(1, len(vse.translate)):
        raise RecipeError(
            f"{where}: vse.translate is {vse.translate}; expected one translation or more, each from another language"
        )
    if vse.first == vse.model:
        raise RecipeError(f"{where}: vse.first and vse.model are both {vse.first!r}; expected another one to re-rank")


def translations(vse: VseSettings) -> dict[str, tuple[str, str]]:
    """The translations of `vse.translate`: `mt:de-en` → its system and its direction (`mt`, `de-en`)."""
    listed = [vse.translate] if isinstance(vse.translate, str) else vse.translate or []
    return {one: (one.partition(":")[0], one.partition(":")[2]) for one in listed}


def _check_vse(vse: VseSettings, where: str) -> None:
    """Refuse settings by which no retrieval model can be trained or tested."""
    for row in vse.only:
        if row not in vse.rows:
            raise RecipeError(f"{where}: vse.only names {row!r}, but vse.rows has {', '.join(vse.rows)}")
    for name in ("seeds", "rows", "select", "test"):
        if not getattr(vse, name):
            raise RecipeError(f"{where}: vse.{name} is empty; expected one entry or more")
    for name in ("seeds", "only", "select", "test"):
        listed = getattr(vse, name)
        if len({str(one) for one in listed}) < len(listed):
            raise RecipeError(f"{where}: vse.{name} has an entry twice: {', '.join(map(str, listed))}")
    for row, groups in vse.rows.items():
        if not groups:
            raise RecipeError(f"{where}: vse.rows.{row} is empty; expected caption groups like en/human")
        check_file_name(str(row), f"{where}: vse.rows")
    for language in vse.test:
        if not re.fullmatch(r"[a-z]{2,3}", language):
            raise RecipeError(f"{where}: vse.test has {language!r}; expected codes like en or de")
    for language in vse.select:
        if language not in vse.test:
            raise RecipeError(f"{where}: vse.select names {language!r}, but vse.test has {', '.join(vse.test)}")
    _check_words(vse, where)
    for name, default in (("image_encoder_rate", 0), ("image_encoder_size", 224)):
        if vse.image_encoder is None and (value := getattr(vse, name)) != default:
            raise RecipeError(f"{where}: vse.{name} is {value:g}, but vse.image_encoder names no network; name a "
                              "folder or a model of the hub")  # fmt: skip
    if vse.warmup_epochs > vse.epochs:
        raise RecipeError(f"{where}: vse.warmup_epochs {vse.warmup_epochs} is more than vse.epochs {vse.epochs}")


def _check_words(vse: VseSettings, where: str) -> None:
    """Refuse several starts of the same word vectors, and files of other kinds."""
    if vse.pretrained is not None and vse.words == "fasttext":
        raise RecipeError(f"{where}: vse.words is fasttext, but vse.pretrained reads the words; leave one out")
    if vse.pretrained is not None and vse.segment != "characters":
        raise RecipeError(f"{where}: vse.segment is {vse.segment}, but vse.pretrained reads the words; leave one out")
    for name, other in (("words is fasttext", vse.words == "fasttext"), ("pretrained is set", vse.pretrained)):
        if other and vse.word_vectors:
            raise RecipeError(f"{where}: vse.{name}, but vse.word_vectors names files too; leave one out")
    _check_sentences(vse, where)
    for language, file in vse.word_vectors.items():
        if not file.endswith(WORD_VECTORS):
            raise RecipeError(
                f"{where}: vse.word_vectors.{language} is {file!r}; expected a file {', '.join(WORD_VECTORS)}"
            )


def _check_sentences(vse: VseSettings, where: str) -> None:
    """Refuse sentence vectors without a text model, of one that is trained, or without some of their words."""
    if vse.pretrained_vectors != "sentences":
        if vse.pretrained_layer != -1:
            raise RecipeError(f"{where}: vse.pretrained_layer is {vse.pretrained_layer}, which only "
                              "vse.pretrained_vectors=sentences reads; leave it out")  # fmt: skip
        return
    if vse.pretrained is None:
        raise RecipeError(f"{where}: vse.pretrained_vectors is sentences, but vse.pretrained names no text model; name "
                          "a folder or a model of the hub")  # fmt: skip
    for name in ("pretrained_rate", "drop_words"):
        if value := getattr(vse, name):
            raise RecipeError(f"{where}: vse.{name} is {value:g}, but sentence vectors are computed once; set it to 0")
    if vse.pretrained_layer >= 0:
        raise RecipeError(f"{where}: vse.pretrained_layer is {vse.pretrained_layer}; expected -1 (the last), -2 …")


_AT_LEAST = {1: ("epochs", "folds", "dim", "word_dim", "min_count", "first_k", "image_encoder_size"),
             0: ("warmup_epochs", "decay_epoch", "clip", "margin", "pretrained_rate", "caption_loss",
                 "weight_decay", "image_encoder_rate")}  # fmt: skip


def _check_vse_numbers(vse: VseSettings, where: str) -> None:
    """Refuse numbers of retrieval models that would fail later, in training."""
    for least, names in _AT_LEAST.items():
        for name in names:
            if getattr(vse, name) < least:
                raise RecipeError(f"{where}: vse.{name} is {getattr(vse, name)}; expected {least} or more")
    if vse.batch_size < 2:
        raise RecipeError(f"{where}: vse.batch_size is {vse.batch_size}; expected 2 or more: an image is compared with "
                          "the others of its batch")  # fmt: skip
    if vse.steps is not None and vse.steps < 1:
        raise RecipeError(f"{where}: vse.steps is {vse.steps}; expected 1 or more, or null for all captions")
    if min(vse.seeds, default=0) < 0:
        raise RecipeError(f"{where}: vse.seeds has {min(vse.seeds)}; expected 0 or more")
    for name in ("learning_rate", "decay"):
        if not 0 < getattr(vse, name) <= HIGHEST_RATE:
            raise RecipeError(
                f"{where}: vse.{name} is {getattr(vse, name)}; expected more than 0 and at most {HIGHEST_RATE:g}"
            )
    for name in ("dropout", "drop_regions", "drop_words"):
        if not 0 <= getattr(vse, name) < 1:
            raise RecipeError(f"{where}: vse.{name} is {getattr(vse, name)}; expected a share from 0 to below 1")
    if vse.type_weights and (min(vse.type_weights.values()) < 0 or not max(vse.type_weights.values())):
        raise RecipeError(f"{where}: vse.type_weights are {vse.type_weights}; expected 0 or more, one of them above 0")


def _check_paths(recipe: Recipe, where: str) -> None:
    """Refuse names of searches that a path cannot contain, and paths that the recipe's translators cannot make."""
    mmt = recipe.mmt
    for name in recipe.augment.searches:
        if not re.fullmatch(r"\w+", name):
            raise RecipeError(f"{where}: augment.searches has {name!r}; expected letters and digits")
    for path in recipe.augment.paths:
        system, languages, search = parse_path(path)
        if system == CAPTION:
            check_caption_path(recipe, path, where)
            continue
        refuse_hub_path(path, where)
        if system not in mmt.systems or len(languages) < 2:
            known = ", ".join(mmt.systems)
            raise RecipeError(f"{where}: augment.paths has {path!r}; expected SYSTEM:en-de, SYSTEM:en-de-en … with a "
                              f"SYSTEM of mmt.systems ({known})")  # fmt: skip
        if search is not None and search not in recipe.augment.searches:
            known = ", ".join(recipe.augment.searches) or "none"
            raise RecipeError(f"{where}: augment.paths has {path!r}; augment.searches has {known}")
        if search is not None and members_of(system)[1] is not None:
            wanted = recipe.augment.searches[search]
            if wanted.method != "beam" or wanted.groups > 1:
                raise RecipeError(
                    f"{where}: augment.paths has {path!r}, which re-ranks a plain beam, but augment.searches."
                    f"{search} {'has groups' if wanted.method == 'beam' else 'draws'}; leave one out"
                )
        check_pretrained_path(recipe, path, where)
        for hop in pairwise(languages):
            if "-".join(hop) not in (found := directions_of(mmt, system)):
                key = "mmt.directions" if found is mmt.directions else f"mmt.pretrained.{system}.directions"
                raise RecipeError(f"{where}: augment.paths has {path!r}, but {key} lacks {'-'.join(hop)!r}")


def _check_sts(sts: StsSettings, where: str) -> None:
    """Refuse sets whose files or figures could not be told from others."""
    for name, path in sts.sets.items():
        if not re.fullmatch(r"[\w-]+", name) or name.endswith("-clean"):
            raise RecipeError(f"{where}: sts.sets has {name!r}; expected letters, digits and -, not -clean at the end")
        if INPUT not in path.rpartition("/")[2]:
            raise RecipeError(
                f"{where}: sts.sets.{name} is {path!r}; expected the file of the pairs, STS2014{INPUT}images.txt, with "
                f"the gold scores beside it, STS2014{GOLD}images.txt"
            )
    for system, values in sts.published.items():
        if unknown := sorted(values.keys() - sts.sets.keys()):
            raise RecipeError(
                f"{where}: sts.published.{system} names {unknown[0]!r}; sts.sets has {', '.join(sts.sets) or 'none'}"
            )
    if not re.fullmatch(r"[a-z]{2,3}", sts.language):
        raise RecipeError(f"{where}: sts.language is {sts.language!r}; expected a code like en")


def _check_trainer(trainer: TrainerSettings, section: str, where: str) -> None:
    """Refuse numbers that torch would refuse."""
    if trainer.threads is not None and trainer.threads < 1:
        raise RecipeError(f"{where}: {section}.trainer.threads is {trainer.threads}; expected 1 or more, or null")
    if trainer.workers < 0:
        raise RecipeError(f"{where}: {section}.trainer.workers is {trainer.workers}; expected 0 or more")


def _check_report(recipe: Recipe, where: str) -> None:
    if recipe.report.resamples < 100:
        raise RecipeError(f"{where}: report.resamples is {recipe.report.resamples}; expected 100 or more")
    for language in recipe.report.words:
        if language not in recipe.vse.test:
            tested = ", ".join(recipe.vse.test)
            raise RecipeError(f"{where}: report.words names {language!r}, but vse.test has {tested}")


def _check_numbers(recipe: Recipe, where: str) -> None:
    """Refuse numbers of translators, and of all stages, that would fail later."""
    mmt, augment = recipe.mmt, recipe.augment
    for section in ("mmt", "augment", "vse"):
        _check_trainer(getattr(recipe, section).trainer, section, where)
    for section, settings in (("mmt", mmt), ("augment", augment)):
        if settings.batch_tokens < 1:
            raise RecipeError(f"{where}: {section}.batch_tokens is {settings.batch_tokens}; expected 1 or more")
    for name in ("dropout", "label_smoothing"):
        if not 0 <= getattr(mmt, name) < 1:
            raise RecipeError(f"{where}: mmt.{name} is {getattr(mmt, name)}; expected from 0 to below 1")
    for name, phase in (("pretrain", mmt.pretrain), ("finetune", mmt.finetune)):
        if not 0 < phase.learning_rate <= HIGHEST_RATE or phase.warmup < 0:
            raise RecipeError(
                f"{where}: mmt.{name}.learning_rate is {phase.learning_rate} and mmt.{name}.warmup {phase.warmup}; "
                f"expected a rate above 0 and at most {HIGHEST_RATE:g}, and 0 or more steps"
            )
    for direction in mmt.directions:
        if not re.fullmatch(r"(\w+)-(?!\1$)\w+", direction):
            raise RecipeError(f"{where}: mmt.directions has {direction!r}; expected two languages, like en-de")


def _check_mmt(mmt: MmtSettings, where: str) -> None:
    """Refuse settings by which no translator can be built or trained."""
    for name, phase in (("pretrain", mmt.pretrain), ("finetune", mmt.finetune)):
        if phase.steps < (name == "finetune") or phase.eval_every < 1:
            raise RecipeError(
                f"{where}: mmt.{name}.steps is {phase.steps} and mmt.{name}.eval_every {phase.eval_every}; expected "
                "1 or more (only mmt.pretrain.steps may be 0)"
            )
        if not 0 <= phase.average < 1:
            raise RecipeError(f"{where}: mmt.{name}.average is {phase.average}; expected from 0 (none) to below 1")
        if phase.r_drop < 0:
            raise RecipeError(f"{where}: mmt.{name}.r_drop is {phase.r_drop}; expected 0 (without) or more, like 5")
        if phase.steps and phase.steps % phase.eval_every:
            raise RecipeError(
                f"{where}: mmt.{name}.steps is {phase.steps}, no multiple of mmt.{name}.eval_every {phase.eval_every}"
            )
    for place, system in enumerate(mmt.systems):
        _check_system(mmt, system, mmt.systems[:place], where)
    check_rerank(mmt, where)
    check_pretrained(mmt, where)
    if not 0 <= mmt.channel.weight < math.inf or mmt.channel.beam_size < 1:
        raise RecipeError(f"{where}: mmt.channel.weight is {mmt.channel.weight} and mmt.channel.beam_size "
                          f"{mmt.channel.beam_size}; expected 0 or more, and 1 or more")  # fmt: skip
    for direction in mmt.back_translate:
        if direction not in mmt.directions or not mmt.pretrain.steps:
            raise RecipeError(
                f"{where}: mmt.back_translate has {direction!r}; expected one of mmt.directions "
                f"({', '.join(mmt.directions)}), and mmt.pretrain.steps above 0"
            )
    for origin, times in mmt.repeat.items():
        if times < 1:
            raise RecipeError(f"{where}: mmt.repeat.{origin} is {times}; expected 1 or more")
    if mmt.repeat and not mmt.pretrain.steps:
        raise RecipeError(f"{where}: mmt.repeat is of pre-training, but mmt.pretrain.steps is 0; leave one out")


def _check_system(mmt: MmtSettings, system: str, before: list[str], where: str) -> None:
    """Refuse an unknown system, or one whose parts are not trained before it."""
    names = members_of(system)[0]
    if CHANNEL in names:
        raise RecipeError(f"{where}: mmt.systems has {system!r}; a {CHANNEL} stands last, once, behind a translator")
    if "+" in system:
        for name in names:
            if name not in before or names.count(name) > 1:
                raise RecipeError(f"{where}: mmt.systems has {system!r}, but {name!r} is not once before it")
    if names[0] in mmt.pretrained and len(names) == 1 and system not in before:
        return
    if not all(re.fullmatch(r"mm?t([2-9]|[1-9]\d{1,3})?", name) for name in names) or system in before:
        raise RecipeError(f"{where}: mmt.systems has {system!r}; expected mt, mmt, mt2 …, mt+mmt …, mt+channel …, "
                          "names of mmt.pretrained, each once")  # fmt: skip
