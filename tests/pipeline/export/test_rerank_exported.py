"""Re-ranked systems of an exported model: `translate --model`, the page."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from data.errors import DataError
from data.pictures.regions import RegionStore
from data.text.text_inputs import PretrainedTokens
from modules.retrieval_models import build_model
from pipeline.cli import main
from pipeline.corpus.prepare import pictures_of
from pipeline.errors import RecipeError
from pipeline.export.export import _copy_translator
from pipeline.export.exported_model import ExportedModel
from pipeline.export.exported_translators import ExportedTranslators
from pipeline.training.model_files import save_model
from pipeline.translation.evaluation import read_translations
from pipeline.translation.translator_files import load_translator
from tests.modules.text_models import save
from tests.pipeline.tiny import RERANKED, Tiny, at

pytestmark = pytest.mark.whole

SEARCH = ("--augment.beam_size=2", "--trainer.accelerator=cpu")

SYSTEMS_LEFT = [f"{system}-{way}" for system in ("mmt", "mt", "mt+channel", "mt+picture", "mt+short")
                for way in ("de-en", "en-de")]  # fmt: skip


@pytest.fixture(scope="module")
def folder(reranked: Tiny, tmp_path_factory) -> Path:
    """An exported model that brings re-ranked systems, somewhere else."""
    assert reranked.main("export", *RERANKED) == 0
    place = tmp_path_factory.mktemp("elsewhere") / "model"
    shutil.move(reranked.workspace.root / "tiny" / "model", place)
    return place


def as_files(reranked: Tiny, rows: list[dict], folder: Path) -> list[str]:
    """Sentences and pictures of rows as files, and the arguments that name them."""
    pictures = pictures_of(reranked.job("corpus"))
    for name, lines in (
        ("in", [row["source"] for row in rows]),
        ("pictures", [pictures[row["image_id"]] for row in rows]),
    ):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    return [
        "--input",
        str(folder / "in"),
        "--images",
        str(folder / "pictures"),
        "--output",
        str(folder / "out"),
        "--force",
    ]


@pytest.mark.parametrize("system", ["mt+channel", "mt+short", "mt+picture"])
def test_an_exported_model_brings_it_with_all_that_it_needs(
    reranked: Tiny, folder: Path, tmp_path: Path, system: str
) -> None:
    exported = ExportedModel.load(folder)
    assert exported.translator_names == sorted(SYSTEMS_LEFT)
    rows = read_translations(reranked.job(f"{system}-en-de"), "test")
    arguments = as_files(reranked, rows, tmp_path)
    with at(tmp_path):  # without the artifacts
        assert main(["translate", "--model", str(folder), "--with", f"{system}:en-de", *arguments, *SEARCH]) == 0
    expected = [row["hypothesis"] for row in rows]
    assert (tmp_path / "out").read_text().splitlines() == expected
    regions = np.stack([exported.regions_of(path)[0] for path in (tmp_path / "pictures").read_text().splitlines()])
    sources = [row["source"] for row in rows]
    assert exported.translators.translate_all(sources, system, "en", "de", regions) == expected


def test_pictures_that_are_missing_are_named(reranked: Tiny, folder: Path, tmp_path: Path, capsys) -> None:
    rows = read_translations(reranked.job("mt+picture-en-de"), "test")[:2]
    arguments = ["translate", "--model", str(folder), "--with", "mt+picture:en-de", *as_files(reranked, rows, tmp_path)]
    first = (tmp_path / "pictures").read_text().splitlines()[0]
    (tmp_path / "pictures").write_text(f"{first}\nnowhere.png\n")
    assert main(arguments) == 1
    assert "pictures:2: image 'nowhere.png' is no file; give a picture" in capsys.readouterr().err
    text_only = shutil.copytree(folder, tmp_path / "model")
    about = json.loads((text_only / "model.json").read_text())
    (text_only / "model.json").write_text(json.dumps(about | {"without_regions": "captions"}))
    arguments[2] = str(text_only)
    for pictures in (f"{first}\nnowhere.png\n", "\n\n"):
        (tmp_path / "pictures").write_text(pictures)
        assert main([*arguments, *SEARCH]) == 0
        assert "without regions, zeros in their place (lines " in capsys.readouterr().err
        assert len((tmp_path / "out").read_text().splitlines()) == 2
    ids = f"{rows[0]['image_id']}\nnowhere\n"
    (tmp_path / "pictures").write_text(ids)
    own = ["--with", "mt+picture:en-de", *arguments[5:]]
    assert reranked.main("translate", *RERANKED, *own) == 1
    assert "pictures:2: image 'nowhere' has no regions in the corpus" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--with", "mt+fine:en-de"], "no mt+fine-en-de in the model; it has mmt-de-en, "),
        (["--with", "mt:en"], "'mt:en' names one language; expected two or more"),
        (["--with", "mt:en-de@wide"], "'mt:en-de@wide' names a search"),
        (["--with", "mt+picture:en-de"], "mt+picture reads regions; give --images, an image a line, or use mt"),
        (["--with", "mt:en-de", "--model", "nowhere"], "no exported model here"),
    ],
)
def test_what_an_exported_model_cannot_translate_is_one_line(
    folder: Path, tmp_path: Path, capsys, arguments: list[str], words: str
) -> None:
    (tmp_path / "in").write_text("a red ball\n")
    assert main(["translate", "--model", str(folder), "--input", str(tmp_path / "in"), *arguments]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line


@pytest.mark.parametrize("lost", ["retrieval/words.json", "channel/bpe.json", "mt/network.json", "network.json"])
def test_an_exported_system_that_is_not_whole_is_refused(folder: Path, tmp_path: Path, lost: str) -> None:
    broken = shutil.copytree(folder, tmp_path / "model")
    name = f"translators/mt+picture-en-de/{lost}"
    (broken / name).unlink()
    about = json.loads((broken / "model.json").read_text())
    del about["files"][name]
    (broken / "model.json").write_text(json.dumps(about))
    with pytest.raises(RecipeError, match=r"mt\+picture-en-de: no whole translator; get the model folder again"):
        ExportedModel.load(broken)


def test_a_text_model_of_its_retrieval_model_goes_along(reranked: Tiny, tmp_path: Path) -> None:
    source, words = shutil.copytree(reranked.job("mt+picture-en-de"), tmp_path / "job"), tmp_path / "bert"
    words.mkdir()
    tokens = PretrainedTokens(str(save("bert", words)))
    dim = RegionStore(reranked.job("corpus") / "regions").dim
    arguments = {"region_dim": dim, "vocabulary_size": len(tokens), "languages": ["de", "en"], "dim": 8, "word_dim": 8,
                 "dropout": 0.0, "pretrained": str(words)}  # fmt: skip
    save_model(source / "retrieval", "san", arguments, build_model("san", **arguments))
    tokens.save(source / "retrieval" / "words.json")
    _copy_translator(source, tmp_path / "exported")
    shutil.rmtree(words)
    with pytest.raises(DataError, match="no tokenizer of transformers there"):
        load_translator(source)
    found, _ = load_translator(tmp_path / "exported")
    assert found.features["image"].model.languages == ["de", "en"]
    assert "bert" not in (tmp_path / "exported" / "retrieval" / "network.json").read_text()


def compares(folder: str, picture: str, *places: str) -> None:
    """A page that shows the translations of a sentence with a picture, in each of some places."""
    from pathlib import Path

    from pipeline.app.page_translation import PictureRegions, compare_translations
    from pipeline.export.exported_model import ExportedModel
    from pipeline.gallery.examples import Sentence

    exported = ExportedModel.load(Path(folder))
    seen = PictureRegions(None, "x", *exported.regions_of(Path(picture)))
    for where in places:
        compare_translations(exported, Sentence("a red ball", "en"), [seen], where)


def test_a_sentence_is_translated_in_two_places_of_the_page(reranked: Tiny, folder: Path, monkeypatch) -> None:
    """Of an uploaded picture, and in the dialog of a picture that was found."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # Streamlit replaces it
    picture = next(iter(pictures_of(reranked.job("corpus")).values()))
    places = (str(folder), str(picture), "picture", "dialog")
    page = AppTest.from_function(compares, default_timeout=60, args=places).run()
    assert not page.exception
    assert (len(page.text_input), len(page.multiselect)) == (2, 2)


def test_the_page_offers_all_systems_side_by_side(reranked: Tiny, folder: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # Streamlit replaces it
    monkeypatch.setattr("pipeline.app.page_translation.marked", lambda text, *_: text)
    picture = next(iter(pictures_of(reranked.job("corpus")).values()))
    page = AppTest.from_function(compares, default_timeout=60, args=(str(folder), str(picture), "picture")).run()
    assert not page.exception
    (choice,) = page.multiselect
    assert choice.label == "Translators into German"
    assert choice.options == ["MT", "MMT", "MT+short", "MT+channel", "MT+picture"]
    assert titles(page) == ["Without the picture (MT, German)", "With the picture (MMT, German)"]
    choice.set_value(["mt+picture", "mt", "mt+channel"]).run()
    assert not page.exception
    assert titles(page) == [
        "Without the picture (MT, German)", "Without the picture (MT+channel, German)",
        "With the picture (MT+picture, German)",
    ]  # fmt: skip
    exported = ExportedModel.load(folder)
    regions, _ = exported.regions_of(picture)
    expected = [exported.translators.translate("a red ball", one, "en", "de", seen)
                for one, seen in (("mt", None), ("mt+channel", None), ("mt+picture", regions))]  # fmt: skip
    assert [one.value for one in page.markdown] == expected


def titles(page: AppTest) -> list[str]:
    """What stands above the translations."""
    return [one.value.replace("\\", "").removesuffix(", the same") for one in page.caption]


def test_systems_of_a_direction_and_those_that_look(folder: Path, tmp_path: Path) -> None:
    translators = ExportedModel.load(folder).translators
    assert translators.systems("de", "en") == ["mt", "mmt", "mt+short", "mt+channel", "mt+picture"]
    assert translators.systems("de", "fr") == []
    looks = [one for one in translators.systems("en", "de") if translators.looks(one, "en", "de")]
    assert looks == ["mmt", "mt+picture"]
    assert translators.looking("en") == {"de": "mmt"}
    without = ExportedTranslators(folder / "translators", ["mt-en-de", "mt+channel-en-de", "mt+picture-en-de"])
    assert without.looking("en") == {"de": "mt+picture"}
    assert ExportedTranslators(folder / "translators", ["mt-en-de", "mt+channel-en-de"]).looking("en") == {}
