"""Stage mmt: one vocabulary, then for each direction NMT on text, and from it MT and MMT on captions."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from pytorch_lightning.callbacks import EMAWeightAveraging

from data.captions import read_pairs
from data.regions import RegionStore
from data.text import BEGIN, END, PADDING, JointBPE, tokenize
from data.translation import Sentences, TranslationData
from modules.beam import BeamSettings
from modules.translation import Translation, network_options
from modules.translation_metrics import ambiguity_scores, translation_scores
from pipeline.dashboards import log_translations
from pipeline.errors import RecipeError
from pipeline.jobs import Job, Workspace
from pipeline.prepare import corpus_job, pictures_of, prepare, twins_of
from pipeline.processes import say
from pipeline.recipe import lender
from pipeline.settings import MmtSettings, Phase, Recipe, result_settings
from pipeline.synthesis import Translated, load_translator, save_network, translate_all
from pipeline.training import LOGS, fit, load_best, load_weights, save_weights

TEXT_VERSION = 1
VERSION = 2
SYSTEMS = ("nmt", "mt", "mmt")


def translator_jobs(recipe: Recipe, workspace: Workspace) -> dict[str, Job]:
    """The jobs of this stage in order: `text`, then `nmt-…`, `mt-…` and `mmt-…` of each direction."""
    corpus = corpus_job(recipe, workspace)
    jobs = {"text": _text_job(recipe.mmt, corpus)}
    for direction in recipe.mmt.directions:
        for system in SYSTEMS:
            if system != "nmt" or recipe.mmt.pretrain.steps:
                start = jobs.get(f"nmt-{direction}") if system != "nmt" else None
                jobs[f"{system}-{direction}"] = _translator_job(recipe, system, direction, corpus, jobs["text"], start)
    return jobs


def translators_of(recipe: Recipe, workspace: Workspace) -> dict[str, Job]:
    """The translators that a recipe uses: its own, or those that it borrows."""
    return translator_jobs(_whose(recipe), workspace)


def mmt(recipe: Recipe, workspace: Workspace, force: bool = False) -> None:
    """Run the stage, preparing what is not prepared, and say each translator's BLEU."""
    own, recipe = recipe.name, _whose(recipe)
    if recipe.name != own:
        say(f"the translators of {own} are those of {recipe.name}")
    if not workspace.done(corpus_job(recipe, workspace)):
        prepare(recipe, workspace)
    jobs = translator_jobs(recipe, workspace)
    for job in jobs.values():
        workspace.perform(job, force)
        figures = workspace.manifest(job)["metrics"]
        if "test_bleu" in figures:
            say(
                f"  {job.name}: test BLEU {figures['test_bleu']:.1f} ({figures['bleu_signature']}), "
                f"tokenised {figures['test_bleu_tokenised']:.1f}"
            )
    workspace.note(recipe.name, "mmt", jobs)


def _whose(recipe: Recipe) -> Recipe:
    """The recipe that trains a recipe's translators."""
    other = recipe.augment.captions or recipe.augment.translators
    return lender(recipe, other) if other else recipe


def read_translations(folder: Path, split: str) -> list[dict[str, Any]]:
    """What a finished translator made of a split: rows of pair_id, image_id, source, reference, hypothesis …"""
    return pq.read_table(folder / f"{split}.parquet").to_pylist()


def _text_job(settings: MmtSettings, corpus: Job) -> Job:
    languages = sorted({language for direction in settings.directions for language in direction.split("-")})

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the vocabulary, and all pairs as token numbers."""
        pairs = read_pairs(inputs["corpus"] / "pairs.parquet")
        lacking = [language for language in languages if language not in pairs.column_names]
        if lacking:
            raise RecipeError(
                f"mmt.directions need {lacking[0]!r}, which no pair of the corpus has; see corpus.languages"
            )
        train = [row for row in pairs if row["split"] == "train"]
        texts = (tokenize(row[language], language) for row in train for language in languages if row[language])
        bpe = JointBPE.train(texts, settings.vocabulary)
        bpe.save(folder / "bpe.json")
        columns = {
            language: bpe.encode_all([text or "" for text in pairs[language]], language) for language in languages
        }
        pq.write_table(pa.table({name: pa.array(ids, pa.list_(pa.int32())) for name, ids in columns.items()}),
                       folder / "tokens.parquet")  # fmt: skip
        return {"vocabulary": len(bpe), "pairs": len(pairs)}

    plain = {"languages": languages, "vocabulary": settings.vocabulary}
    return Job("text", "mmt", TEXT_VERSION, plain, {"corpus": corpus}, run)


def _translator_job(recipe: Recipe, system: str, direction: str, corpus: Job, text: Job, start: Job | None) -> Job:
    settings = recipe.mmt
    phase = settings.pretrain if system == "nmt" else settings.finetune
    plain = {
        key: value
        for key, value in result_settings(settings).items()
        if key not in ("directions", "pretrain", "finetune", "network_options", "repeat")
    }
    if options := _options_of(settings, system):
        plain["network_options"] = options
    if settings.repeat and system == "nmt":
        plain["repeat"] = settings.repeat
    plain |= {"system": system, "direction": direction, "phase": result_settings(phase), "seed": recipe.seed}
    name = f"{system}-{direction}"

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Train, then translate validation, test and twins."""
        store = RegionStore(inputs["corpus"] / "regions", check_values=False)
        pairs = _Pairs(inputs["corpus"], inputs["text"], direction, store, settings.without_regions)
        bpe = JointBPE.load(inputs["text"] / "bpe.json")
        network = {
            "vocabulary_size": len(bpe), "region_dim": store.dim if system == "mmt" else None,
            "embedding_dim": settings.embedding_dim, "hidden_dim": settings.hidden_dim,
            "dropout": settings.dropout, "padding": PADDING, **settings.network_options,
        }  # fmt: skip
        if settings.network != "bilstm":  # what has no name is one
            network["network"] = settings.network
        figures = _train(recipe, folder, inputs, name, phase, pairs, network, bpe, store if system == "mmt" else None)
        save_network(folder, network, bpe)
        figures |= _test(folder, pairs, store, settings)
        if (folder / "test.parquet").is_file():
            pictures = pictures_of(inputs["corpus"])
            log_translations(LOGS / recipe.name / "mmt" / name, read_translations(folder, "test"), pictures)
        return figures

    inputs = {"corpus": corpus, "text": text} | ({"start": start} if start is not None else {})
    return Job(name, "mmt", VERSION, plain, inputs, run, True, asdict(settings.trainer))


def _options_of(settings: MmtSettings, system: str) -> dict[str, Any]:
    """The network's options that change a system's result: none at its default, those of regions where it looks."""
    defaults = network_options(settings.network)
    return {
        name: value
        for name, value in settings.network_options.items()
        if value != defaults[name] and (name != "look" or system == "mmt")
    }


def _train(
    recipe: Recipe, folder: Path, inputs: dict[str, Path], name: str, phase: Phase, pairs: "_Pairs",
    network: dict[str, Any], bpe: JointBPE, store: RegionStore | None,
) -> dict[str, Any]:  # fmt: skip
    """Train one translator and leave its best weights in the folder."""
    settings = recipe.mmt
    pretraining = name.startswith("nmt")
    train = pairs.select("train", captions=not pretraining, repeat=settings.repeat if pretraining else {})
    validation = pairs.select("val", captions=True if store is not None else None)
    torch.manual_seed(recipe.seed)  # start values, whatever ran before in this process
    module = Translation(
        network, phase.learning_rate, phase.warmup, phase.steps, settings.label_smoothing, BEGIN, END,
    )  # fmt: skip
    module.reference = pairs.texts(pairs.target, "val", captions=True if store is not None else None)
    module.decode = lambda tokens: bpe.decode(tokens, pairs.target)
    if "start" in inputs:
        load_weights(module.translator, inputs["start"] / "weights.safetensors", strict=False)
    data = TranslationData(
        train, validation, store, settings.batch_tokens, phase.eval_every, recipe.seed, settings.trainer.workers
    )
    log_dir = LOGS / recipe.name / "mmt" / name
    best = fit(
        module, data, settings.trainer, folder, log_dir, phase.steps // phase.eval_every, "val/bleu", recipe.seed,
        settings.clip, [EMAWeightAveraging(decay=phase.average)] if phase.average else [],
    )  # fmt: skip
    load_best(module, best)
    save_weights(module.translator, folder / "weights.safetensors")
    return {"train_pairs": len(train), "steps": phase.steps, "parameters": sum(p.numel() for p in module.parameters())}


def _test(folder: Path, pairs: "_Pairs", store: RegionStore, settings: MmtSettings) -> dict[str, Any]:
    """Translate validation, test and twins; leave the translations, give back BLEU and the ambiguity scores."""
    figures: dict[str, Any] = {}
    for split in ("val", "test", "twins"):
        rows = pairs.rows(split, captions=True)
        if not rows:
            continue
        found = _translate(folder, pairs, rows, [row["seen_id"] for row in rows], store, settings)
        references = [row[pairs.target] for row in rows]
        scores = translation_scores(
            [one.text for one in found], references, [one.tokens for one in found],
            [tokenize(text, pairs.target) for text in references],
        )  # fmt: skip
        figures |= {
            f"{split}_bleu": scores.sacre, f"{split}_bleu_tokenised": scores.tokenised, f"{split}_chrf": scores.chrf,
            f"{split}_ter": scores.ter, "bleu_signature": scores.signature, f"{split}_sentences": len(rows),
        }  # fmt: skip
        _write_translations(folder / f"{split}.parquet", pairs, rows, found)
    if pairs.twins and pairs.direction == "en-de":
        figures |= _test_twins(folder, pairs, store, settings)
    return figures


def _test_twins(folder: Path, pairs: "_Pairs", store: RegionStore, settings: MmtSettings) -> dict[str, Any]:
    """Ambiguous words of the twin pictures: with the right regions and, for a translator that looks, the twin's."""
    twins = {row["image_id"]: row for row in pairs.twins}
    rows = [row for row in pairs.rows("twins", captions=True) if row["image_id"] in twins]
    about = [twins[row["image_id"]] for row in rows]
    reference = {row["image_id"]: tokenize(row["de"], "de") for row in rows}
    figures: dict[str, Any] = {}
    for kind, key in (("", "image_id"), ("swapped_", "twin_id")):
        found = _translate(folder, pairs, rows, [entry[key] for entry in about], store, settings)
        scores = ambiguity_scores(
            [one.tokens for one in found], [reference[entry["image_id"]] for entry in about],
            [reference[entry["twin_id"]] for entry in about], [entry["word"] for entry in about],
            [entry["expected"] for entry in about],
        )  # fmt: skip
        figures |= {kind + name: value for name, value in scores.items()}
    return figures


def _translate(
    folder: Path, pairs: "_Pairs", rows: list[dict[str, Any]], image_ids: list[str | None], store: RegionStore,
    settings: MmtSettings,
) -> list[Translated]:  # fmt: skip
    translator, bpe = load_translator(folder)
    beam = BeamSettings(settings.beam_size, settings.length_penalty)
    source = [row["source_tokens"] for row in rows]
    return translate_all(
        translator, bpe, source, image_ids, store, pairs.target, beam, settings.batch_tokens, settings.trainer
    )


def _read_tokens(path: Path, languages: list[str]) -> pa.Table:
    try:
        return pq.read_table(path, columns=languages)
    except (OSError, pa.ArrowException) as error:
        raise RecipeError(f"{path}: not readable ({str(error).splitlines()[0]}); run `make stage-mmt` with "
                          "ARGS=--force") from None  # fmt: skip


def _write_translations(path: Path, pairs: "_Pairs", rows: list[dict[str, Any]], found: list[Translated]) -> None:
    table = [
        {"pair_id": row["pair_id"], "image_id": row["image_id"], "source": row[pairs.source],
         "reference": row[pairs.target], "hypothesis": one.text, "tokens": one.tokens, "score": one.score}
        for row, one in zip(rows, found, strict=True)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(table), path)


class _Pairs:
    """The parallel table with its token numbers, seen in one direction.

    A row's `seen_id` is its image where that has regions, else None; `caption` says that it is fine-tuned and tested
    on, which rows of images without regions are if `without_regions` is `captions`.
    """

    def __init__(self, corpus: Path, text: Path, direction: str, store: RegionStore, without_regions: str) -> None:
        self.direction = direction
        self.source, self.target = direction.split("-")
        self.twins = twins_of(corpus)
        tokens = _read_tokens(text / "tokens.parquet", [self.source, self.target])
        source, target = (tokens[name].to_pylist() for name in (self.source, self.target))
        seen = {image_id: image_id for image_id in store.ids}
        rows = [
            row | {"source_tokens": s, "target_tokens": t, "seen_id": seen.get(row["image_id"])}
            for row, s, t in zip(read_pairs(corpus / "pairs.parquet").to_list(), source, target, strict=True)
            if row[self.source] and row[self.target]
        ]
        about = "seen_id" if without_regions == "text" else "image_id"
        self._rows = [row | {"caption": row[about] is not None} for row in rows]

    def rows(self, split: str, captions: bool | None) -> list[dict[str, Any]]:
        """Pairs of a split: captions, text to pre-train on, or (None) all."""
        rows = [row for row in self._rows if row["split"] == split]
        wanted = [row for row in rows if captions is None or row["caption"] == captions]
        return wanted or (rows if captions is False else [])  # no text without pictures: learn from all of it

    def select(self, split: str, captions: bool | None, repeat: Mapping[str, int] | None = None) -> Sentences:
        """The same as token numbers, those of some origins several times.

        Raises:
            RecipeError: there are none, or none of an origin that is to be repeated.
        """
        rows = self.rows(split, captions)
        origins = {row["origin"] for row in rows}
        for origin in repeat or {}:
            if origin not in origins:
                raise RecipeError(f"mmt.repeat names {origin!r}; the pairs are of {', '.join(sorted(origins))}")
        rows = [row for row in rows for _ in range((repeat or {}).get(row["origin"], 1))]
        if not rows:
            kind = {True: "with regions ", False: "", None: ""}[captions]
            raise RecipeError(f"mmt: no {self.direction} pair {kind}for {split}; see the data report of the corpus")
        source, target = ([row[f"{side}_tokens"] for row in rows] for side in ("source", "target"))
        return Sentences(source, target, [row["seen_id"] for row in rows])

    def texts(self, language: str, split: str, captions: bool | None) -> list[str]:
        """Surface sentences of the same pairs, in the same order."""
        return [row[language] for row in self.rows(split, captions)]
