"""A trained model as a folder: exported, moved, shared, damaged; nothing in it is a pickle."""

import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from data.pictures.regions import RegionStore
from modules.translators.beam import BeamSettings
from pipeline.cli import main
from pipeline.corpus.prepare import pictures_of
from pipeline.engine.files import digest_of
from pipeline.errors import RecipeError
from pipeline.export.export import _plain
from pipeline.export.exported_model import ExportedModel
from pipeline.export.model_card import shown_name
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.translation.evaluation import read_translations
from pipeline.translation.translating import translate_all
from pipeline.translation.translator_files import load_translator
from tests.pipeline.tiny import Tiny, at


def test_an_exported_model_encodes_as_the_trained_one_did(used: Tiny, exported: ExportedModel) -> None:
    """Pixels through the extractor give the very regions of the corpus, and vectors do not depend on the batch."""
    corpus = used.job("corpus")
    pictures = list(pictures_of(corpus).items())[:5]
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", exported)
    stored = {row["name"]: row["digest"] for row in gallery.rows()}
    kept = gallery._parts.take([stored[name] for name, _ in pictures], "vectors")
    np.testing.assert_allclose(exported.encode_pictures([path for _, path in pictures]).single(), kept, atol=1e-5)
    one = exported.encode_pictures([pictures[3][1]]).single()
    np.testing.assert_allclose(one[0], kept[3], atol=1e-5)
    texts = ["a red bat", "a small blue box on the left of a ball", "a"]
    together = exported.encode_captions(texts, "en").single()
    apart = torch.cat([exported.encode_captions([text], "en").single() for text in texts])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)


@pytest.fixture
def moved(exported: ExportedModel, tmp_path: Path) -> Path:
    """The model folder, somewhere else."""
    return Path(shutil.copytree(exported.folder, tmp_path / "elsewhere" / "model"))


def test_a_model_folder_can_be_moved(moved: Path, exported: ExportedModel) -> None:
    other = ExportedModel.load(moved)
    assert other.fingerprint == exported.fingerprint
    assert torch.equal(other.encode_captions(["a bat"]).single(), exported.encode_captions(["a bat"]).single())
    texts = [(moved / name).read_text() for name in ("README.md", "recipe.yaml", "model.json")]
    assert not any(str(exported.folder) in text for text in texts)


def test_a_changed_or_missing_file_of_a_model_is_one_line(moved: Path) -> None:
    words = (moved / "words.json").read_text()
    (moved / "words.json").write_text(words + " ")
    with pytest.raises(RecipeError, match=r"words\.json: is not what was exported"):
        ExportedModel.load(moved)
    (moved / "words.json").unlink()
    with pytest.raises(RecipeError, match=r"words\.json: no such file"):
        ExportedModel.load(moved)


def test_a_pickle_is_never_loaded(moved: Path, tmp_path: Path) -> None:
    """Even where the digest says that it is meant."""
    import hashlib

    class Evil:
        def __reduce__(self):
            return (Path(tmp_path / "evil").touch, ())

    (moved / "weights.safetensors").write_bytes(pickle.dumps(Evil()))
    about = json.loads((moved / "model.json").read_text())
    about["files"]["weights.safetensors"] = hashlib.sha256((moved / "weights.safetensors").read_bytes()).hexdigest()
    (moved / "model.json").write_text(json.dumps(about))
    with pytest.raises(RecipeError, match="not a readable safetensors file"):
        ExportedModel.load(moved)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "change",
    [{"files": {"../../secret": "0"}}, {"format": 99}, {"languages": "en"}, {"regions": 0}, {"regions": {}},
     {"files": {}}, {"languages": []}, {"languages": ["tlh"]}, {"languages": [5]},
     {"regions": {"regions": 3, "size": 64, "version": "x"}},
     {"regions": {"regions": 10**7, "size": 64, "version": 1}}],
)  # fmt: skip
def test_a_damaged_model_json_is_one_line(moved: Path, change: dict) -> None:
    about = json.loads((moved / "model.json").read_text())
    (moved / "model.json").write_text(json.dumps(about | change))
    with pytest.raises(RecipeError, match=r"model\.json"):
        ExportedModel.load(moved)


def test_what_was_not_exported_is_not_loaded(moved: Path) -> None:
    """Neither a file of another kind, be it listed, nor one that is not listed, nor a text model from elsewhere."""
    about = json.loads((moved / "model.json").read_text())
    (moved / "notes.txt").write_text("mine")
    with pytest.raises(RecipeError, match=r"notes\.txt: was not exported"):
        ExportedModel.load(moved)
    (moved / "notes.txt").unlink()
    (moved / "run.sh").write_text("mine")
    listed = about["files"] | {"run.sh": digest_of(moved / "run.sh")}
    (moved / "model.json").write_text(json.dumps(about | {"files": listed}))
    with pytest.raises(RecipeError, match="a file of this kind is not loaded"):
        ExportedModel.load(moved)
    (moved / "run.sh").unlink()
    network = json.loads((moved / "network.json").read_text())
    network["arguments"]["pretrained"] = "someone/evil"
    (moved / "network.json").write_text(json.dumps(network))
    listed = about["files"] | {"network.json": digest_of(moved / "network.json")}
    (moved / "model.json").write_text(json.dumps(about | {"files": listed}))
    with pytest.raises(RecipeError, match=r"its text model .* is missing"):
        ExportedModel.load(moved)


@pytest.mark.parametrize("arguments", [
    {"image_side": {"model": "san", "arguments": {"pretrained": "evil/hub"}}},
    {"image_encoder": {"config": {"model_type": "detr", "use_pretrained_backbone": True, "backbone": "evil/hub"}}},
    {"network": {"parts": [{"vision": {"pretrained": "evil/hub"}}]}},
])  # fmt: skip
def test_a_part_that_names_a_network_elsewhere_is_refused(moved: Path, arguments: dict) -> None:
    about, network = (json.loads((moved / name).read_text()) for name in ("model.json", "network.json"))
    network["arguments"] |= arguments
    (moved / "network.json").write_text(json.dumps(network))
    about["files"]["network.json"] = digest_of(moved / "network.json")
    (moved / "model.json").write_text(json.dumps(about))
    with pytest.raises(
        RecipeError, match=r"network\.json: names the network 'evil/hub', which is no part of the model"
    ):
        ExportedModel.load(moved)


def test_the_exported_recipe_is_a_recipe(moved: Path, used: Tiny) -> None:
    with at(used.folder):
        assert load_recipe(str(moved / "recipe.yaml")).vse == used.recipe().vse


def test_an_export_replaces_nothing_of_others(used: Tiny, exported: ExportedModel, tmp_path: Path) -> None:
    place, thesis = tmp_path / "place", tmp_path / "place" / "thesis.txt"
    shutil.copytree(exported.folder, place)
    thesis.write_text("of value")
    assert used.main("export", "--output", str(place)) == 1
    assert thesis.read_text() == "of value"
    thesis.unlink()
    (place / ".DS_Store").touch()  # macOS makes it of each folder that is looked at
    assert used.main("export", "--output", str(place)) == 0
    (tmp_path / "place.before").mkdir()
    (tmp_path / "place.before" / "model.json").write_text("of value")
    assert used.main("export", "--output", str(place)) == 1
    assert (tmp_path / "place.before" / "model.json").read_text() == "of value"


def test_an_export_again_keeps_the_license(used: Tiny, tmp_path: Path) -> None:
    model = tmp_path / "model"
    assert used.main("export", "--output", str(model), "--license", "cc-by-4.0") == 0
    (model / "LICENSE").write_text("as its owner says")
    assert used.main("export", "--output", str(model)) == 0
    assert (model / "LICENSE").read_text() == "as its owner says"
    assert "license: cc-by-4.0" in (model / "README.md").read_text()
    assert ExportedModel.load(model).languages
    assert used.main("export", "--output", str(model), "--license", "mit") == 0
    assert "license: mit" in (model / "README.md").read_text()


def test_an_export_that_was_killed_between_is_mended(used: Tiny, exported: ExportedModel, tmp_path: Path) -> None:
    shutil.copytree(exported.folder, tmp_path / "model.before")
    shutil.copytree(exported.folder, tmp_path / "model.ready")
    assert used.main("export", "--output", str(tmp_path / "model")) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"model", ".model.lock"}
    assert ExportedModel.load(tmp_path / "model").fingerprint == exported.fingerprint


def test_a_model_brings_its_translators(used: Tiny, exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    """As the recipe's own jobs translate; a gallery's copy follows when there are more of them."""
    assert exported.translator_names == ["mmt-de-en", "mmt-en-de", "mt-de-en", "mt-en-de"]
    translators = exported.translators
    assert translators.targets("mt", "en") == ["de"]
    assert translators.targets("mt", "fr") == []
    assert translators.sources("mt") == ["de", "en"]
    regions = RegionStore(used.job("corpus") / "regions")
    for system in ("mt", "mmt"):
        rows = read_translations(used.job(f"{system}-en-de"), "test")[:3]
        network, bpe = load_translator(used.job(f"{system}-en-de"))
        sources, images = [row["source"] for row in rows], [row["image_id"] for row in rows]
        settings = TrainerSettings(accelerator="cpu", progress=False)
        expected = translate_all(
            network, bpe, bpe.encode_all(sources, "en"), images, regions, "de", BeamSettings(), 100, settings
        )
        for source, image, best in zip(sources, images, expected, strict=True):
            seen = regions.take(regions.rows([image]))[0]
            assert translators.translate(source, system, "en", "de", seen) == best[0].text
        all_seen = regions.take(regions.rows(images))
        assert translators.translate_all(sources, system, "en", "de", all_seen) == [best[0].text for best in expected]
    with pytest.raises(RecipeError, match="no mt-en-fr in the model; it has mmt-de-en, mmt-en-de"):
        translators.translate("a bat", "mt", "en", "fr")
    with pytest.raises(RecipeError, match="mmt-en-de reads regions"):
        translators.translate("a bat", "mmt", "en", "de")
    few = tmp_path / "few"
    shutil.copytree(exported.folder, few)
    shutil.rmtree(few / "translators")
    about = json.loads((few / "model.json").read_text())
    about["files"] = {name: one for name, one in about["files"].items() if not name.startswith("translators")}
    (few / "model.json").write_text(json.dumps(about))
    update_gallery(tmp_path / "gallery", ExportedModel.load(few), PictureFolder(own), {})
    assert Gallery.open(tmp_path / "gallery").exported.translator_names == []
    more = update_gallery(tmp_path / "gallery", exported, PictureFolder(own))
    assert more.computed == 0
    assert Gallery.open(tmp_path / "gallery").exported.translator_names == exported.translator_names


def test_a_translation_says_which_words_are_unknown(exported: ExportedModel) -> None:
    translators = exported.translators
    partly, nothing, foreign = translators.translate_all(
        ["a red qwertz", "qwertz uiop", "un chien court sur la plage"], "mt", "en", "de"
    )
    assert (partly.reading.words, partly.reading.unknown, partly.reading.known) == (3, ("qwertz",), True)
    assert (nothing, nothing.reading.known) == ("", False)
    assert partly == translators.translate("a red qwertz", "mt", "en", "de") != ""
    assert foreign.reading.language == "fr"
    assert foreign.reading.note.endswith("; this looks like French; this translator reads English")
    assert "roter" in translators.translate("roter", "mt", "en", "de").reading.unknown  # a word of the target alone


def test_translators_exported_without_the_words_of_their_sentences_are_read(
    exported: ExportedModel, tmp_path: Path
) -> None:
    words = "translators/mt-en-de/source_words.json"
    older = Path(shutil.copytree(exported.folder, tmp_path / "older"))
    (older / words).unlink()
    with pytest.raises(RecipeError, match=r"source_words\.json: no such file"):
        ExportedModel.load(older)
    about = json.loads((older / "model.json").read_text())
    del about["files"][words]
    (older / "model.json").write_text(json.dumps(about))
    translators = ExportedModel.load(older).translators
    assert translators.translate("a red ball", "mt", "en", "de").reading.known
    assert translators.translate("qwertz uiop", "mt", "en", "de") == ""
    damaged = Path(shutil.copytree(exported.folder, tmp_path / "damaged"))
    with pytest.raises(RecipeError, match=r"source_words\.json"):
        ExportedModel.load(rewritten(damaged, {words: "[1]"})).translators.translate("a", "mt", "en", "de")


def test_a_folder_of_links_into_a_cache_is_a_model_too(exported: ExportedModel, tmp_path: Path) -> None:
    """As a download from a hub leaves it: files that are links, and hidden ones beside them."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(path for path in exported.folder.rglob("*") if path.is_file())):
        shutil.copyfile(path, blobs / str(number))
        link = snapshot / path.relative_to(exported.folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blobs / str(number))
    (snapshot / ".gitattributes").write_text("*.safetensors filter=lfs")
    loaded = ExportedModel.load(snapshot)
    assert loaded.fingerprint == exported.fingerprint
    torch.testing.assert_close(loaded.encode_captions(["a bat"]).single(), exported.encode_captions(["a bat"]).single())


def rewritten(model: Path, files: dict[str, str]) -> Path:
    """More files in an exported model, with their digests, as somebody could who shares one."""
    for name, text in files.items():
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text(text)
    about = json.loads((model / "model.json").read_text())
    about["files"] |= {name: digest_of(model / name) for name in files}
    (model / "model.json").write_text(json.dumps(about))
    return model


def test_translators_that_are_none_are_refused(exported: ExportedModel, tmp_path: Path) -> None:
    """Among them an ensemble, which would name folders elsewhere."""
    for number, name in enumerate(["notes.md", "foo/network.json", "mt-en-fr/network.json"]):
        model = tmp_path / str(number)
        shutil.copytree(exported.folder, model)
        with pytest.raises(RecipeError, match="no whole translator; get the model folder again"):
            ExportedModel.load(rewritten(model, {f"translators/{name}": "{}"}))
    ensembles = ('["/etc", "/tmp"]', '["."]', "[1]", '"x"')
    for number, text in enumerate([*(f'{{"ensemble": {members}}}' for members in ensembles), "5", "[]"]):
        model = tmp_path / f"e{number}"
        shutil.copytree(exported.folder, model)
        with pytest.raises(RecipeError, match="no translator here"):
            ExportedModel.load(rewritten(model, {"translators/mt-en-de/network.json": text}))
    pretrained = '{"pretrained": {"name": "some/translator", "direction": "en-de", "codes": {}, "revision": null}}'
    model = Path(shutil.copytree(exported.folder, tmp_path / "p"))
    about = json.loads((model / "model.json").read_text())
    for name in [name for name in about["files"] if name.startswith("translators/mt-en-de/")]:
        del about["files"][name]
        (model / name).unlink()
    (model / "model.json").write_text(json.dumps(about))
    with pytest.raises(RecipeError, match="names a pretrained translator that lies elsewhere"):
        ExportedModel.load(rewritten(model, {"translators/mt-en-de/network.json": pretrained}))


def test_an_export_does_not_say_where_networks_lie(tmp_path: Path) -> None:
    """Nor where data does, whether the folder is still there or not."""
    recipe = load_recipe("scenes", [f"--regions.model={tmp_path}", "--vse.pretrained=org/hub-name"])
    plain, vectors = _plain(recipe), f"{tmp_path}/wiki.en.vec"
    assert plain["regions"]["model"] == tmp_path.name
    assert plain["vse"]["pretrained"] == "org/hub-name"
    assert str(tmp_path) not in json.dumps(plain)
    settings = [f"--vse.word_vectors.en={vectors}", f"--vse.reranker.word_vectors.de={vectors}"]
    plain = _plain(load_recipe("scenes", settings))
    assert plain["vse"]["word_vectors"] == {"en": "wiki.en.vec"}
    assert str(tmp_path) not in json.dumps(plain)
    settings = [
        f"--mmt.pretrained.opus.model={tmp_path}/opus", f"--regions.model={tmp_path}/gone",
        f"--sts.sets.a={tmp_path}/STS2014.input.images.txt",
    ]  # fmt: skip
    recipe = load_recipe("scenes", settings, networks=False)
    assert str(tmp_path) not in json.dumps(_plain(recipe))
    assert shown_name(recipe.regions.model) == "gone"


def test_weights_of_nan_are_refused_before_anything_is_written(moved: Path, tmp_path: Path, capsys) -> None:
    """By whatever reads them: a vector database would take them."""
    weights = load_file(moved / "weights.safetensors")
    name = next(name for name, one in weights.items() if one.is_floating_point() and one.numel() > 1)
    weights[name].view(-1)[0] = float("nan")
    (moved / "weights.safetensors").write_bytes(save(weights))
    about = json.loads((moved / "model.json").read_text())
    about["files"]["weights.safetensors"] = digest_of(moved / "weights.safetensors")
    (moved / "model.json").write_text(json.dumps(about))
    (tmp_path / "lines.txt").write_text("a red bat\n")
    words = ["--captions", str(tmp_path / "lines.txt"), "--model", str(moved), "--output", str(tmp_path / "x.npy")]
    assert main(["embed", *words]) == 1
    assert f"{name} has NaN or infinity" in capsys.readouterr().err
    assert not list(tmp_path.glob("x.npy*"))


def test_files_of_a_model_can_be_read_by_others_as_the_umask_says(exported: ExportedModel) -> None:
    mask = os.umask(0o022)
    os.umask(mask)
    for path in exported.folder.rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o777 == 0o666 & ~mask, path.name
