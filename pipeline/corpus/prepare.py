"""Stage prepare: a corpus becomes a caption table, a parallel table, a region store and a data report."""

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.captions.table import TRAINING_SPLITS, read_captions, write_captions, write_pairs
from data.corpora import Corpus
from data.corpora.registry import CORPORA
from data.findings.checks import NO_PICTURE, UNREADABLE, Finding
from data.findings.report import DataReport, data_report
from data.lines import read_lines, read_text
from data.pictures.extractor import EXTRACTOR_VERSION, Extractor
from data.pictures.folder import pictures_in
from data.pictures.regions import RegionStore, standardise, write_regions
from data.processes import cores
from pipeline.corpus.doctor import SKIP, read_corpus, say_counts, say_each, say_findings
from pipeline.engine.artifacts import read_json
from pipeline.engine.console import debug, is_verbose
from pipeline.engine.files import write_atomically
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.recipes.settings import Recipe

VERSION = 1
_ROOT = "root.txt"
_ABOUT = {"task": str, "label": str, "twins": [{str: str}], "pictures": {str: str}}
_FINDING = {"level": str, "what": str, "where": str, "count": int, "examples": [str]}
_REPORT = {"findings": [_FINDING]}


def corpus_job(recipe: Recipe, workspace: Workspace) -> Job:
    """The one job of this stage: `captions.parquet`, `pairs.parquet`, `regions/`, `about.json`, `report.md`.

    If it has been done, it follows the data to where they lie now, so that their pictures are found.

    Raises:
        DataError: a file of the corpus is missing.
        RecipeError: the corpus is a test set.
    """
    corpus = recipe.corpus
    root = None if corpus.root is None else Path(corpus.root)
    reader = CORPORA[corpus.name]

    def files() -> str:
        """A digest of what is read."""
        return workspace.fingerprint(reader.sources(corpus.options, root), reader.named_from(corpus.options, root))

    if reader.test_only:
        raise RecipeError(
            f"{recipe.name}: the corpus {corpus.name} is a test set, so nothing is prepared or trained; measure an "
            "exported model on it: `bildwort evaluate MODEL --on recipe:NAME`"
        )
    settings = _settings(recipe, workspace, files())

    def run(folder: Path, inputs: dict[str, Path]) -> dict[str, Any]:
        """Leave captions, pairs, regions and the data report."""
        content = read_corpus(recipe, folder)
        brought = content.open_regions()
        report = data_report(content, brought)
        _write_report(report, corpus.name, folder)  # before hours of extracting
        write_captions(content.captions, folder / "captions.parquet")
        write_pairs(content.pairs, folder / "pairs.parquet")
        store = _regions(content, brought, folder, recipe)
        _write_about(content, folder, root)
        if brought is None:
            report = report.with_regions(content.captions, store)
            _write_report(report, corpus.name, folder)
        if files() != settings["files"]:
            shutil.rmtree(folder)  # a later run of the same key would go on from what was read of other files
            raise RecipeError(f"{corpus.name}: files of the corpus changed while they were read; run the same command "
                              "again")  # fmt: skip
        return {
            "captions": len(content.captions),
            "pairs": len(content.pairs),
            "images": len({caption.image_id for caption in content.captions}),
            "regions": list(store.regions.shape[1:]),
            "warnings": len(report.findings),
        }

    job = Job(
        "corpus", "prepare", VERSION, settings, {}, run,
        headline=lambda figures: f"{figures['captions']:,} captions of {figures['images']:,} images",
    )  # fmt: skip
    if root is not None and not workspace.read_only:
        _follow(root, workspace.folder(job) / _ROOT)
    return job


def _settings(recipe: Recipe, workspace: Workspace, files: str) -> dict[str, Any]:
    """What changes a prepared corpus, with a digest of its files."""
    corpus = recipe.corpus
    brings_regions = CORPORA[corpus.name].brings_regions(corpus.options)
    settings: dict[str, Any] = {
        "corpus": corpus.name,
        "options": asdict(corpus.options),
        "files": files,
        "regions": None if brings_regions else _extractor_settings(recipe, workspace),
    }
    if corpus.is_subset:
        settings["subset"] = {
            "images": corpus.images, "captions_per_image": corpus.captions_per_image, "seed": recipe.seed,
        }  # fmt: skip
    if corpus.unreadable == "skip":
        settings["unreadable"] = corpus.unreadable
    return settings


def pictures_digest(recipe: Recipe, workspace: Workspace) -> str | None:
    """A digest of the corpus's pictures, for the keys of jobs that read them beside regions which the corpus brings.

    None where the key of the corpus has it already, as regions are found in the pictures, or there are none.
    """
    corpus = recipe.corpus
    folder = getattr(corpus.options, "pictures", None)
    if folder is None or corpus.root is None or not CORPORA[corpus.name].brings_regions(corpus.options):
        return None
    return workspace.fingerprint(sorted(pictures_in(Path(corpus.root) / folder)[0].values()))


def say_corpus(recipe: Recipe, workspace: Workspace, job: Job) -> None:
    """Print how many findings the data report of a finished job has, with `--verbose` each of them."""
    folder, counts = workspace.folder(job), workspace.manifest(job)["metrics"]
    debug(f"  {recipe.corpus.name}: {counts['pairs']:,} pairs, regions {'×'.join(map(str, counts['regions']))}")
    findings = [Finding(**row) for row in read_json(folder / "report.json", _REPORT)["findings"]]
    say_counts(findings, folder / "report.md")
    if is_verbose():
        say_each(findings)


def pictures_of(corpus: Path) -> dict[str, Path]:
    """Image id → picture file of a prepared corpus; empty where the pictures are not at hand.

    Raises:
        RecipeError, DataError: the corpus is damaged.
    """
    root, named = corpus, corpus / _ROOT
    if os.path.lexists(named):  # a corpus that makes its own pictures has none
        root = Path(read_text(named, "the folder of its pictures"))
    return {name: root / path for name, path in about_corpus(corpus)["pictures"].items()}


def captioned_images(corpus: Path, split: str | None = None) -> list[str]:
    """The ids of images of a prepared corpus that have captions, in the order of its region store, if it has one.

    All that models read of images is in this order (regions, pictures, vectors), and so are ranks: those of any two
    models are of the same images, one by one.

    Args:
        corpus: its folder.
        split: of the captions; None: any.

    Raises:
        DataError: the corpus is damaged.
    """
    captions = read_captions(corpus / "captions.parquet")
    rows = zip(captions["image_id"][:], captions["split"][:], strict=True)
    wanted = dict.fromkeys(image for image, of in rows if split in (None, of))
    ids = corpus / "regions" / "ids.txt"
    stored = read_lines(ids, "an image id a line") if ids.exists() else []
    return list(dict.fromkeys([*(image for image in stored if image in wanted), *wanted]))


def about_corpus(corpus: Path) -> dict[str, Any]:
    """Task, tasks of single languages if they have one, label, pictures, and twins with the word that each settles.

    Raises:
        RecipeError: it is damaged.
    """
    about: dict[str, Any] = read_json(corpus / "about.json", _ABOUT)
    return about


def _extractor_settings(recipe: Recipe, workspace: Workspace) -> dict[str, Any]:
    """How regions are found in pixels; a network is identified by its files, or by its revision on the hub."""
    settings: dict[str, Any] = asdict(recipe.regions) | {"version": EXTRACTOR_VERSION}
    if (name := settings.pop("model")) is None:
        return settings
    from modules.pretrained.hub import revision_of

    files = sorted(path for path in Path(name).glob("*") if path.is_file())
    if not files and (revision := revision_of(name)) is not None:
        name = f"{name}@{revision}"
    return settings | {"model": workspace.fingerprint(files) if files else name}


def _write_report(report: DataReport, name: str, folder: Path) -> None:
    """Write the data report.

    Raises:
        RecipeError: a finding would spoil results.
    """
    (folder / "report.md").write_text(report.as_markdown(), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(report.as_dict(), indent=1), encoding="utf-8")
    if report.errors:
        say_findings(report.findings)
        first = report.errors[0]
        skip = f", or leave them out by {SKIP}" if first.what in (NO_PICTURE, UNREADABLE) else ""
        raise RecipeError(
            f"{name}: {first.what} ({first.count}×, {first.where}: {', '.join(first.examples[:3])}); correct the "
            f"data{skip}; all findings are in {folder / 'report.md'}"
        )


def _regions(content: Corpus, source: RegionStore | None, folder: Path, recipe: Recipe) -> RegionStore:
    """Copy the corpus's region store row by row, or extract one from its pictures."""
    target = folder / "regions"
    if source is None:
        training = sorted({caption.image_id for caption in content.captions if caption.split in TRAINING_SPLITS})
        if not training:
            raise RecipeError(f"{recipe.corpus.name}: no training captions, by whose pictures regions are standardised")
        Extractor(recipe.regions).extract_all(content.pictures, target, workers=cores())
        standardise(target, training)
        return RegionStore(target)
    paired = {pair.image_id for pair in content.pairs if pair.image_id and pair.image_id in source}
    wanted = sorted(paired.union(caption.image_id for caption in content.captions))
    rows = source.rows(wanted)
    write_regions(target, wanted, ((source.regions[row], source.boxes[row]) for row in rows))
    return RegionStore(target)


def _write_about(content: Corpus, folder: Path, root: Path | None) -> None:
    """Tasks, label, twins and the pictures, from the folder of the data on, or from this one if they were made here."""
    if root is None or any(path.is_relative_to(folder) for path in content.pictures.values()):
        root = folder
    else:
        (folder / _ROOT).write_text(str(root.absolute()), encoding="utf-8")
    pictures = {
        name: (path.relative_to(root) if path.is_relative_to(root) else path.absolute()).as_posix()
        for name, path in content.pictures.items()
    }
    about = {"task": content.task, "label": content.label, "twins": content.twins, "pictures": pictures}
    about |= {"tasks": content.tasks} if content.tasks else {}
    (folder / "about.json").write_text(json.dumps(about, ensure_ascii=False), encoding="utf-8")


def _follow(root: Path, noted: Path) -> None:
    """Note that the data of a prepared corpus lies elsewhere now, so that its pictures are found."""
    if noted.is_file() and noted.read_bytes() != (place := str(root.absolute())).encode():
        write_atomically(noted, place)
