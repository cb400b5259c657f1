"""Stage mmt: for each direction a vocabulary, NMT on text, from it MT and MMT on captions, ensembles and channels;
and pretrained translators, which are tested."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from data.batches.parallel_text import ParallelText
from data.batches.translation import TranslationData
from data.captions.table import read_pairs
from data.text.characters import lowered
from data.text.language_codes import UNSPACED
from data.text.tokenisation import BEGIN, END, PADDING, JointBPE, tokenize_all
from modules.metrics.translation import surface_bleu
from modules.training.translation import Translation
from modules.translators.registry import network_options
from pipeline.corpus.prepare import corpus_job
from pipeline.engine.console import command, debug
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.loading import lender
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import CHANNEL, members_of, opposite, parse_system
from pipeline.recipes.trainer_settings import job_settings
from pipeline.recipes.translator_settings import MmtSettings, Phase
from pipeline.training.model_files import load_best, load_weights, save_weights
from pipeline.training.tensorboard import log_result
from pipeline.training.trainer import fit, log_folder
from pipeline.translation.back_translation import back_translation_job
from pipeline.translation.evaluation import evaluate_translator, settings_of_test, translation_headline
from pipeline.translation.parallel_text import parallel_text_of
from pipeline.translation.pretrained import pretrained_job
from pipeline.translation.reranked import channel_of, read_beside, reranked_jobs
from pipeline.translation.translator_files import save_network, save_several

TEXT_VERSION = 1
VERSION = 2
_OF_SOME_JOBS = (
    "directions", "pretrain", "finetune", "network_options", "repeat", "systems", "pretrain_captions",
    "back_translate", "channel", "rerank", "pretrained",
)  # fmt: skip
_OF_PICTURES = ("look", "gate_bias")  # options of networks that text-only translators do not read


def translator_jobs(
    recipe: Recipe, workspace: Workspace, model: Callable[[], Job], borrowed: Callable[[Recipe], Mapping[str, Job]]
) -> dict[str, Job]:
    """The jobs of this stage in order: of each direction `bpe-…`, `back-…`, `nmt-…`, `mt-…`, `mmt-…`, `mt+mmt-…`;
    after all of them those of pretrained translators, `mt+channel-…`, and what is re-ranked by tuned weights (of stage
    `rerank`).

    A direction and its opposite share a vocabulary, and what other directions a recipe names does not change it.
    Systems of one number share an NMT: `mt2` and `mmt2` start from `nmt2`.

    Args:
        model: gives the job that trains `mmt.rerank.retrieval`.
        borrowed: gives the translators of another recipe.

    Raises:
        RecipeError: a recipe to borrow from trains no such translator, or a system lacks a part.
    """
    mmt = recipe.mmt
    single = [system for system in mmt.systems if "+" not in system]
    ours = [system for system in single if system not in mmt.pretrained]
    numbers = sorted({parse_system(system)[1] for system in ours} or ({1} if not single else {}))
    corpus, jobs = corpus_job(recipe, workspace), dict[str, Job]()
    for direction in mmt.directions if numbers else ():
        languages = sorted(direction.split("-"))
        text = jobs.setdefault(f"bpe-{'-'.join(languages)}", _text_job(mmt, languages, corpus))
        if direction in mmt.back_translate:
            jobs[f"back-{direction}"] = _back_translation(recipe, direction, corpus, text, borrowed)
        starts: dict[int, Job] = {}
        for number in numbers if mmt.pretrain.steps else ():
            name, back = "nmt" if number == 1 else f"nmt{number}", jobs.get(f"back-{direction}")
            starts[number] = _translator_job(recipe, name, direction, corpus=corpus, text=text, back=back)
            jobs[starts[number].name] = starts[number]
        for system in mmt.systems:
            if system in ours:
                start = starts.get(parse_system(system)[1])
                job = _translator_job(recipe, system, direction, corpus=corpus, text=text, start=start)
                jobs[job.name] = job
            elif "+" in system and members_of(system)[1] is None:
                jobs[f"{system}-{direction}"] = _joint_job(recipe, system, direction, jobs)
    for system, direction in mmt.translators:
        if system in mmt.pretrained:
            jobs[f"{system}-{direction}"] = pretrained_job(recipe, workspace, system, direction, corpus)
    for system, direction in mmt.translators:
        if members_of(system)[1] == CHANNEL:
            jobs[f"{system}-{direction}"] = _joint_job(recipe, system, direction, jobs, channel_of(jobs, direction))
    return jobs | reranked_jobs(recipe, jobs, model)


def _back_translation(
    recipe: Recipe, direction: str, corpus: Job, text: Job, borrowed: Callable[[Recipe], Mapping[str, Job]]
) -> Job:  # fmt: skip
    """The job that gives a direction's one-sided sentences their source, by a borrowed MT of the opposite direction."""
    name = recipe.mmt.back_translate[direction]
    other_recipe = lender(recipe, name, "mmt.back_translate")
    if other_recipe.mmt.back_translate:
        raise RecipeError(f"recipe {recipe.name}: mmt.back_translate borrows from {name}, which borrows itself")
    wanted = f"mt-{opposite(direction)}"
    if (translator := borrowed(other_recipe).get(wanted)) is None:
        raise RecipeError(f"recipe {recipe.name}: mmt.back_translate.{direction} is {name!r}, which trains no {wanted}")
    return back_translation_job(recipe.mmt, direction, corpus, text, translator)


def say_scores(workspace: Workspace, jobs: Iterable[Job]) -> None:
    """With `--verbose`, test BLEU of finished translators."""
    for job in jobs:
        figures = workspace.manifest(job)["metrics"]
        if "test_bleu" in figures:
            debug(
                f"  {job.name}: test BLEU {figures['test_bleu']:.1f} ({figures['bleu_signature']}), "
                f"tokenised {figures['test_bleu_tokenised']:.1f}"
            )


def require_lenders(recipe: Recipe, workspace: Workspace, jobs: Mapping[str, Job]) -> None:
    """Check, before anything is trained, that other recipes have trained what this one borrows.

    Raises:
        RecipeError: one has not; the message says which command does it.
    """
    for direction, name in recipe.mmt.back_translate.items():
        borrowed = jobs[f"back-{direction}"].inputs["translator"]
        if not workspace.done(borrowed):
            wanted_one = borrowed.name.removeprefix("mt-")
            words = [f"--mmt.directions=[{wanted_one}]", "--mmt.systems=[mt]", "--augment.paths=[]", *recipe.lent]
            wanted = command("mmt", name, *words, target=["stage-mmt", f"RECIPE={name}", f"ARGS={' '.join(words)}"])
            raise RecipeError(
                f"mmt.back_translate.{direction} borrows {borrowed.name} of {name}, which is not done yet; "
                f"run `{wanted}` first"
            )


def _text_job(settings: MmtSettings, languages: list[str], corpus: Job) -> Job:
    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave the vocabulary, and all pairs as token numbers."""
        pairs = read_pairs(inputs["corpus"] / "pairs.parquet")
        lacking = [language for language in languages if language not in pairs.column_names]
        if lacking:
            raise RecipeError(
                f"mmt.directions need {lacking[0]!r}, which no pair of the corpus has; pairs are read from "
                "corpus.parallel, or of a corpus that has its own, in corpus.languages; to train no translators: "
                "--mmt.directions=[] --mmt.systems=[] --augment.paths=[], and rows of human captions alone (vse.only)"
            )
        tokens = {
            language: tokenize_all([text or "" for text in pairs[language][:]], [language] * len(pairs))
            for language in languages
        }
        rows = zip(pairs["split"][:], *tokens.values(), strict=True)
        bpe = JointBPE.train((text for split, *row in rows if split == "train" for text in row if text),
                             settings.vocabulary)  # fmt: skip
        bpe.save(folder / "bpe.json")
        columns = {language: bpe.encode_tokenized(sentences) for language, sentences in tokens.items()}
        pq.write_table(pa.table({name: pa.array(ids, pa.list_(pa.int32())) for name, ids in columns.items()}),
                       folder / "tokens.parquet")  # fmt: skip
        return {"vocabulary": len(bpe), "pairs": len(pairs)}

    plain = {"languages": languages, "vocabulary": settings.vocabulary}
    return Job(
        "text", "mmt", TEXT_VERSION, plain, {"corpus": corpus}, run,
        headline=lambda figures: f"vocabulary of {figures['vocabulary']:,}",
    )  # fmt: skip


def _translator_job(recipe: Recipe, system: str, direction: str, **inputs: Job | None) -> Job:
    """A job that trains a translator, from the inputs that are not None: `corpus`, `text`, `start` (NMT), `back`."""
    settings, (kind, number) = recipe.mmt, parse_system(system)
    phase, seed = settings.pretrain if kind == "nmt" else settings.finetune, recipe.seed + number - 1
    plain = {key: value for key, value in job_settings(settings).items() if key not in _OF_SOME_JOBS}
    options = network_options(settings.network) | settings.network_options
    plain["network_options"] = {
        key: value for key, value in options.items() if key not in _OF_PICTURES or kind == "mmt"
    }
    if kind == "nmt":
        plain |= {"repeat": settings.repeat, "pretrain_captions": settings.pretrain_captions}
    plain |= {"system": kind, "direction": direction, "phase": job_settings(phase), "seed": seed}
    run, trainer = _Training(recipe, system, direction, kind, phase, seed), asdict(settings.trainer)
    needed = {name: job for name, job in inputs.items() if job is not None}
    return Job(f"{system}-{direction}", "mmt", VERSION, plain, needed, run, True, trainer, translation_headline)


@dataclass(frozen=True)
class _Training:
    """The work of a job that trains a translator.

    Attributes:
        system: `nmt`, `mt`, `mmt2` …
        kind: the system without its number.
    """

    recipe: Recipe
    system: str
    direction: str
    kind: str
    phase: Phase
    seed: int

    def __call__(self, folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Train, then translate validation, test and twins."""
        settings = self.recipe.mmt
        pairs = parallel_text_of(inputs, self.direction, settings)
        bpe = JointBPE.load(inputs["text"] / "bpe.json")
        network = {
            "vocabulary_size": len(bpe), "region_dim": pairs.store.dim if self.kind == "mmt" else None,
            "embedding_dim": settings.embedding_dim, "hidden_dim": settings.hidden_dim,
            "dropout": settings.dropout, "padding": PADDING, **settings.network_options,
        }  # fmt: skip
        if settings.network != "bilstm":  # a network without a name is a Bi-LSTM
            network["network"] = settings.network
        name = f"{self.system}-{self.direction}"
        log_dir = log_folder(self.recipe, name, folder.name)
        figures = self._train(folder, log_dir, inputs, pairs, network, bpe)
        bpe.source_words = bpe.words_in(row["source_tokens"] for row in pairs.rows("train", None))
        save_network(folder, network, bpe)
        figures |= evaluate_translator(self.recipe, folder, pairs, name)
        self._log_result(log_dir, figures)
        return figures

    def _train(
        self, folder: Path, log_dir: Path, inputs: Mapping[str, Path], pairs: ParallelText, network: dict[str, Any],
        bpe: JointBPE,
    ) -> dict[str, Any]:  # fmt: skip
        """Train, and leave the best weights in the folder."""
        settings, phase = self.recipe.mmt, self.phase
        if self.kind == "nmt":
            train = pairs.select("train", None if settings.pretrain_captions else False, settings.repeat)
        else:
            train = pairs.select("train", captions=True)
        alike = None if self.kind == "nmt" else True  # MT and MMT are chosen by the same sentences
        validation = pairs.select("val", captions=alike)
        torch.manual_seed(self.seed)  # start values do not depend on earlier jobs of this process
        module = Translation(
            network, phase.learning_rate, phase.warmup, phase.steps, settings.label_smoothing, BEGIN, END,
            agreement=phase.r_drop,
        )  # fmt: skip
        module.reference = [lowered(text, pairs.target) for text in pairs.texts(pairs.target, "val", captions=alike)]
        module.decode = lambda tokens: bpe.decode(tokens, pairs.target)
        module.bleu = surface_bleu(pairs.target in UNSPACED)
        if "start" in inputs:
            load_weights(module.translator, inputs["start"] / "weights.safetensors", strict=False)
        store, trainer = pairs.store if self.kind == "mmt" else None, settings.trainer
        data = TranslationData(
            train,
            validation,
            store,
            settings.batch_tokens,
            phase.eval_every,
            self.seed,
            trainer.workers,
            trainer.regions,
        )
        best = fit(
            module, data, trainer, folder, log_dir, phase.steps // phase.eval_every, "val/bleu", self.seed,
            settings.clip, languages=self.recipe.vse.test, average=phase.average,
        )  # fmt: skip
        load_best(module, best)
        save_weights(module.translator, folder / "weights.safetensors")
        parameters = sum(p.numel() for p in module.parameters())
        return {"train_pairs": len(train), "steps": phase.steps, "parameters": parameters}

    def _log_result(self, log_dir: Path, figures: Mapping[str, Any]) -> None:
        """The translator's settings and test figures in TensorBoard."""
        settings = self.recipe.mmt
        shown = {
            "model": self.system, "trained on": self.direction, "seed": self.seed,
            "learning_rate": self.phase.learning_rate, "dropout": settings.dropout, "dim": settings.hidden_dim,
            "batch_tokens": settings.batch_tokens, "steps": self.phase.steps,
        }  # fmt: skip
        names = {"BLEU": "test_bleu", "ambiguous words %": "ambiguous"}
        results = {title: figures[metric] for title, metric in names.items() if metric in figures}
        log_result(log_dir, self.recipe.vse.test, shown, results)


def _joint_job(recipe: Recipe, system: str, direction: str, jobs: dict[str, Job], channel: Job | None = None) -> Job:
    """Several translators in one search; with a channel, of one or more.

    A borrowed channel has learned nothing about held-out images: `back-…`, which uses the same translator, checks that.
    """
    settings, name = recipe.mmt, f"{system}-{direction}"
    plain, about = settings_of_test(settings), dict[str, Any]()
    members = {member: jobs[f"{member}-{direction}"] for member in members_of(system)[0]}
    inputs = read_beside(next(iter(members.values()))) | members
    if channel is not None:
        plain[CHANNEL], inputs[CHANNEL] = asdict(settings.channel), channel
        about[CHANNEL] = {"direction": direction, **plain[CHANNEL], "length_penalty": settings.length_penalty}

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Combine the members, then translate validation, test and twins."""
        save_several(folder, inputs, list(members), list(about), about)
        return evaluate_translator(recipe, folder, parallel_text_of(inputs, direction, settings), name)

    return Job(name, "mmt", VERSION, plain, inputs, run, True, asdict(settings.trainer), translation_headline)
