"""`export`: a trained retrieval model as a folder that `ExportedModel` loads; if wanted as ONNX, and on the hub."""

import json
import math
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml
from safetensors.numpy import save_file

from data.pictures.extractor import EXTRACTOR_VERSION
from data.pictures.regions import read_standard
from data.translators.casing import Casing
from modules.retrieval_models import model_class
from pipeline.corpus.prepare import about_corpus
from pipeline.engine.artifacts import copy_whole, read_json
from pipeline.engine.console import info, stage_command
from pipeline.engine.files import delete_folder, digest_of, lock, rename_atomically
from pipeline.engine.job import Job
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.export.exported_files import (
    ABOUT,
    CARD,
    CASING,
    FORMAT,
    LICENSE,
    OF_OWNERS,
    RERANKER,
    TRANSLATORS,
    model_of,
    read_about,
)
from pipeline.export.exported_model import ExportedModel
from pipeline.export.hub import check_push, push
from pipeline.export.model_card import model_card, shown_name
from pipeline.export.onnx_export import require_onnx, write_onnx
from pipeline.export.parts import copy_model, of_images, require_empty, write_for_transformers
from pipeline.export.picture_reading import BY_NETWORK, PIXELS, STANDARD, VISION
from pipeline.export.training_hashes import SEEN, hashes_of
from pipeline.graph import Graph
from pipeline.recipes.settings import Recipe
from pipeline.recipes.systems import members_of
from pipeline.retrieval.reranking import is_tested_on, trained_reranker
from pipeline.retrieval.rows import Row, languages_of
from pipeline.training.model_files import NETWORK
from pipeline.translation.translator_files import RETRIEVAL, files_of_translator
from pipeline.vectors.image_vectors import VECTORS
from pipeline.vectors.images import IMAGES, reads_regions

_MARK, _OF_MACOS = ".exporting", ".DS_Store"
_BESIDE = ("partial", "ready", "before")
_KNOWN_BY = (ABOUT, _MARK)


def export_and_share(
    recipe: Recipe, workspace: Workspace, output: Path | None, license_id: str | None, hub_name: str | None,
    private: bool, onnx: Path | None, transformers: Path | None = None,
) -> None:  # fmt: skip
    """Export the recipe's best model; then write it as ONNX, and upload it, where that is asked for.

    The arguments are those of the command.

    Raises:
        RecipeError: there is no model, or one of these cannot be done; what can be checked is checked first.
    """
    if hub_name is not None:
        check_push(hub_name)
    elif private:
        raise RecipeError("export: --private needs --push USER/NAME")
    output = output or model_of(recipe, workspace)
    if onnx is not None:
        require_onnx(onnx, output)
    if transformers is not None:
        require_empty(transformers, output)
    exported = export(Graph(recipe, workspace), output, license_id, hub_name)
    if onnx is not None:
        difference = write_onnx(exported, onnx)
        info(f"{onnx}: ONNX; vectors differ from torch's by at most {difference:.1e}")
    if transformers is not None:
        count = write_for_transformers(exported.folder, exported.model, transformers)
        info(f"{transformers}: a dual encoder of {count:,} parameters for transformers")
    if hub_name is not None:
        info(push(exported.folder, hub_name, private))


def up_to_date(graph: Graph) -> ExportedModel:
    """The recipe's exported model; it is exported where it is not, or is damaged, or its parts are no longer the best.

    Raises:
        RecipeError: as `export`.
    """
    folder = model_of(graph.recipe, graph.workspace)
    try:
        made = _made_of(graph, chosen_row(graph))
    except RecipeError as error:
        if not (folder / ABOUT).is_file():
            raise
        raise RecipeError(f"{error}; or take {folder}, a model of earlier data or settings, as it is: run this command "
                          f"again with --model {shlex.quote(str(folder))}") from None  # fmt: skip
    with suppress(RecipeError):
        if read_about(folder).get("made") == made:
            return ExportedModel.load(folder)
    return export(graph, folder)


def _made_of(graph: Graph, chosen: Row) -> dict[str, str]:
    """The jobs whose files a model has, and when they were finished: run again, one may leave other weights."""
    second = trained_reranker(graph.reranker, graph.workspace, chosen)
    rows = [chosen, *([] if second is None else [second])]
    jobs = [*exported_translators(graph, chosen), *(job for row in rows for job in (row.job, *row.trained))]
    return {f"{job.name} {job.key}": graph.workspace.manifest(job)["finished"] for job in jobs}


def export(graph: Graph, output: Path, license_id: str | None = None, hub_name: str | None = None) -> ExportedModel:
    """Write a trained model of a recipe to a folder: of `vse.only` and `vse.seeds` the best.

    The best is the best on validation among those that know the most languages.

    Args:
        output: the folder; it must not exist, or hold an exported model that is replaced.
        license_id: for the model card, the hub's name of a license; None: that of the model that is replaced, if any.
        hub_name: for the model card, where the model will be on the hub; None: it stays a folder.

    Raises:
        RecipeError: there is no such model, or the folder holds something else.
    """
    output = output.absolute()
    if not output.name:
        raise RecipeError(f"--output {output}: expected a folder of its own")
    chosen = chosen_row(graph)
    half, ready, before = (output.with_name(f"{output.name}.{end}") for end in _BESIDE)
    with lock(output.with_name(f".{output.name}.lock"), f"export {output}"):
        if before.exists() and not output.exists():  # of an export that was killed
            before.rename(output)
        for folder in (output, half, ready, before):
            _require_ours(folder)
        for folder in (half, ready, before):
            delete_folder(folder, *_KNOWN_BY)
        half.mkdir(parents=True)
        (half / _MARK).touch()
        name = _write(graph, chosen, half, license_id or _license_of(output), hub_name)
        (half / _MARK).unlink()
        if (output / LICENSE).is_file():
            shutil.copyfile(output / LICENSE, half / LICENSE)
        exported = ExportedModel.load(half)  # what cannot be loaded is not left behind
        rename_atomically(half, ready)
        if output.exists():
            output.rename(before)
        ready.rename(output)
        delete_folder(before, *_KNOWN_BY)
    info(f"{name}, seed {chosen.seed}: {output}")
    return replace(exported, folder=output)


def _license_of(folder: Path) -> str | None:
    """The license of a model that is exported again, if somebody named one."""
    with suppress(RecipeError):
        return read_about(folder).get("license")
    return None


def _require_ours(folder: Path) -> None:
    """Refuse to replace a folder that is no exported model, or holds other files."""
    if not folder.exists() or (folder / _MARK).is_file() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        names = {ABOUT, *OF_OWNERS, *read_about(folder)["files"]}
        foreign = {path.relative_to(folder).as_posix() for path in folder.rglob("*")
                   if not path.is_dir() and path.name != _OF_MACOS} - names  # fmt: skip
    except RecipeError:
        if (folder / ABOUT).is_file() and any(folder.glob("*.safetensors")):
            raise RecipeError(f"{folder}: its {ABOUT} is damaged or of another version; delete the folder and run the "
                              "same command again") from None  # fmt: skip
        foreign = {"other files"}
    if foreign:
        raise RecipeError(
            f"{folder}: holds {min(foreign)}, which is no part of an exported model; choose another folder"
        )


def _write(graph: Graph, chosen: Row, half: Path, license_id: str | None, hub_name: str | None) -> str:
    """Write all files of the model folder; the model's name."""
    recipe, workspace = graph.recipe, graph.workspace
    source, manifest = workspace.require(chosen.job), workspace.manifest(chosen.job)
    corpus = workspace.require(chosen.job.inputs["corpus"])
    network = read_json(source / "network.json", NETWORK)
    arguments = copy_model(source, half, _images_of(workspace, chosen.job))
    regions = _write_regions(recipe, corpus, half, of_images(arguments))
    translators = exported_translators(graph, chosen)
    for translator in translators:
        _copy_translator(workspace.folder(translator), half / TRANSLATORS / translator.name)
    if targets := sorted({translator.name.rpartition("-")[2] for translator in translators}):
        texts = workspace.require(graph.of_translators.corpus) / "captions.parquet"
        forms = {language: Casing.of_corpus(texts, language).forms for language in targets}
        (half / CASING).write_text(json.dumps(forms, ensure_ascii=False), encoding="utf-8")
    second = None
    if (reranker := trained_reranker(graph.reranker, workspace, chosen)) is not None:
        found = workspace.manifest(reranker.job)["metrics"]["test"] if is_tested_on(reranker, chosen) else {}
        second = {
            "name": f"{recipe.vse.reranker['model']}, {reranker.name}", "test": found,
            "languages": languages_of(recipe.vse, reranker.name), "first_k": reranker.job.settings["first_k"],
        }  # fmt: skip
        (half / RERANKER).mkdir()
        second_job = reranker.trained[0]
        copy_model(workspace.folder(second_job), half / RERANKER, _images_of(workspace, second_job))
    if (seen := hashes_of(chosen.job, workspace)) is not None:
        seen.save(half / SEEN)
    (half / "recipe.yaml").write_text(
        yaml.safe_dump(_plain(recipe), allow_unicode=True, sort_keys=False), encoding="utf-8"
    )
    name, test = f"{network['model']}, {chosen.name}, {recipe.name}", manifest["metrics"]["test"]
    about = {
        "format": FORMAT, "name": name, "languages": languages_of(recipe.vse, chosen.name), "regions": regions,
        "row": chosen.name, "seed": chosen.seed, "job": chosen.job.name, "key": chosen.job.key, "test": test,
        "made": _made_of(graph, chosen), "without_regions": graph.of_translators.recipe.mmt.without_regions,
        "reranker": second, "license": license_id,
    }  # fmt: skip
    single = model_class(network["model"]).score_with(**network["arguments"]) == "inner product"
    of_row = replace(recipe, vse=recipe.vse.of_row(chosen.name))
    card = model_card(
        of_row, about, about_corpus(corpus), [job.name for job in translators], single=single,
        parameters=manifest["metrics"].get("parameters"), hub_name=hub_name,
    )  # fmt: skip
    (half / CARD).write_text(card, encoding="utf-8")
    files = [path for path in sorted(half.rglob("*")) if path.is_file() and path.name != _MARK]
    about["files"] = {path.relative_to(half).as_posix(): digest_of(path) for path in files}
    (half / ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
    return name


def _images_of(workspace: Workspace, trained: Job) -> Path | None:
    """The folder of the job that left the image vectors which a model was trained on; None: it reads no vectors."""
    read = trained.inputs.get(IMAGES)
    return workspace.require(read) if read is not None and read.name.startswith(VECTORS) else None


def _copy_translator(source: Path, target: Path) -> None:
    """Copy a translator, and what re-ranks its lists."""
    for name in files_of_translator(source):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        copy_whole(source / name, target / name)
    if (target / RETRIEVAL).is_dir():
        copy_model(source / RETRIEVAL, target / RETRIEVAL)


def _write_regions(recipe: Recipe, corpus: Path, half: Path, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """How regions are found in pixels, or pixels are read; None where regions were made elsewhere.

    `arguments` are those of what encodes the images.
    """
    if "network" in arguments:
        return {"regions": 1, "size": 8, "version": EXTRACTOR_VERSION, "model": None, BY_NETWORK: True}
    if "image_encoder" in arguments:
        size = math.isqrt(arguments["region_dim"] // 3)
        return {"regions": 1, "size": size, "version": EXTRACTOR_VERSION, "model": None, PIXELS: True}
    if (standard := read_standard(corpus / "regions")) is None:
        return None
    save_file(dict(zip(("mean", "scale"), standard, strict=True)), half / STANDARD)
    regions: dict[str, Any] = asdict(recipe.regions) | {"version": EXTRACTOR_VERSION}
    if recipe.regions.model is not None:
        from data.pictures.vision import copy_network  # transformers' models take seconds to import

        copy_network(recipe.regions.model, half / VISION)
        regions["model"] = VISION
    return regions


def chosen_row(graph: Graph) -> Row:
    """Of the rows and seeds that have been trained, the best on validation of those that know the most languages.

    Raises:
        RecipeError: none has been, or the settings are of several models.
    """
    workspace, rows = graph.workspace, graph.single_rows
    if not rows:
        raise RecipeError("export: these settings fuse, rerank or translate; export one model (vse.model) of them")
    if (best := graph.best_row) is None:
        folders = (workspace.root / "jobs" / row.job.name for row in rows)
        others = any(any(folder.glob("*/manifest.json")) for folder in folders)
        trained = "; one with other settings or data is there: give those to this command too, or" if others else ";"
        raise RecipeError(
            f"export: {rows[0].job.name} has not been trained with these data and settings, nor another of vse.only "
            f"and vse.seeds{trained} run {stage_command('vse')}"
        )
    return best


def _plain(recipe: Recipe) -> dict[str, Any]:
    """What `load_recipe` reads as this recipe, but for where its data lies."""
    left_out = ("name", "tables", "refused", "lent", "variant", "file", "report", "table_variant", "below_tables",
                "not_of_tables")  # fmt: skip
    plain = {key: value for key, value in asdict(recipe).items() if key not in left_out}
    plain["regions"]["model"] = shown_name(recipe.regions.model)
    for name in ("pretrained", "image_encoder"):
        plain["vse"][name] = shown_name(plain["vse"][name])
    corpus = plain["corpus"]
    without: dict[str, Any] = _without_places(plain | {"corpus": {"name": corpus["name"]} | corpus["options"]})
    return without


def _without_places(value: Any) -> Any:
    """Settings in which whole paths are replaced by the names of their files or folders."""
    if isinstance(value, Mapping):
        return {key: _without_places(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_without_places(part) for part in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value


def exported_translators(graph: Graph, chosen: Row) -> list[Job]:
    """The recipe's MT and MMT and all that is re-ranked, as far as they have been trained; no pretrained translators.

    Those that look at pictures must read regions as the model does; a model that reads pixels reads none.
    """
    corpus, translators = chosen.job.inputs["corpus"] if reads_regions(chosen.job) else None, []
    mmt, workspace = graph.of_translators.recipe.mmt, graph.workspace
    workspace.require_settled(graph.translators.values())
    for name, job in graph.translators.items():
        members, reranks = members_of(name.partition("-")[0])
        if (members not in (["mt"], ["mmt"]) and reranks is None) or members[0] in mmt.pretrained:
            continue
        looks = any(member.startswith("mmt") for member in members) or "image" in job.settings.get("features", ())
        if (not looks or (corpus is not None and job.inputs["corpus"].key == corpus.key)) and workspace.done(job):
            translators.append(job)
    return translators
