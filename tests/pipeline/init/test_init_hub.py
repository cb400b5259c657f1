"""Data sets of the hub; `load_dataset` is a stand-in, as tests have no network."""

import zipfile
from collections.abc import Sequence
from pathlib import Path

import datasets
import pytest

from data.errors import DataError
from data.own_captions.data_sets import write_data_set
from pipeline.init import command
from tests.data.networks import make_network
from tests.pipeline.init.own_pictures import COUNT, draw_pictures, run

FEW = 12


def test_the_hub_is_asked_whether_it_answers_before_a_data_set_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its client asks for each file for half a minute, and tells of each try."""
    asked: list[str] = []
    names = draw_pictures(tmp_path / "drawn", COUNT)
    held = [{"path": None, "bytes": (tmp_path / "drawn" / name).read_bytes()} for name in names]
    found = datasets.Dataset.from_dict({"image": held, "text": list(names.values())})
    found = found.cast_column("image", datasets.Image())
    monkeypatch.setattr(command, "ask_hub", lambda: asked.append("the hub") or "")
    monkeypatch.setattr(datasets, "load_dataset", lambda name: asked.append(name) or found)
    dino = make_network("dino", tmp_path / "dino")
    assert run(tmp_path, "init", "hub:me/pictures", "--backbone", str(dino), "--translator", "none") == 0
    assert asked == ["the hub", "me/pictures"]


def _told(name: str, tmp_path: Path) -> str:
    with pytest.raises(DataError) as caught:
        write_data_set(name, tmp_path / "made")
    assert not (tmp_path / "made").exists()
    return str(caught.value)


def test_no_name_is_one_line(tmp_path: Path) -> None:
    assert _told("hub:", tmp_path) == "hub: names no data set; expected its name on the hub behind it, hub:USER/NAME"


def test_a_data_set_that_is_not_given_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is private or gated, and one that has several configurations."""

    def refuse(name: str) -> None:
        raise ValueError(f"{name} is gated")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    told = _told("hub:people/dogs", tmp_path)
    assert "people/dogs is gated" in told
    assert "log in for a private or gated one (`.venv/bin/hf auth login`)" in told
    assert "to choose one of several configurations, copy it into a folder" in told


def test_what_init_refuses_for_the_hub_is_not_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = datasets.Dataset.from_dict({"caption": ["a dog", "a cat"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda name: rows)
    told = _told("hub:people/dogs", tmp_path)
    assert told.endswith("no column of pictures among caption; expected one of the type Image")


def _found(places: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library gives of pictures that lie in these places."""
    rows = datasets.Dataset.from_dict({
        "image": [{"path": place, "bytes": None} for place in places], "text": [f"a dog, {k}" for k in range(FEW)],
    }).cast_column("image", datasets.Image())  # fmt: skip
    monkeypatch.setattr(datasets, "load_dataset", lambda name: datasets.DatasetDict({"train": rows}))


@pytest.mark.parametrize("cache", ["huggingface_hub.constants.HF_HUB_CACHE", "datasets.config.HF_DATASETS_CACHE"])
@pytest.mark.parametrize("form", ["files", "archive"])
def test_pictures_in_a_cache_are_read(form: str, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches need not lie in HF_HOME."""
    folder = tmp_path / "elsewhere" / "snapshot"
    names = [*draw_pictures(folder, FEW)]
    places = [str(folder / name) for name in names]
    monkeypatch.setattr("datasets.config.HF_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, str(tmp_path / "elsewhere"))
    if form == "archive":
        archive = folder / "train.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            for name in names:
                packed.write(folder / name, name)
        places = [f"zip://{name}::{archive}" for name in names]
    _found(places, monkeypatch)
    write_data_set("hub:people/dogs", tmp_path / "made")
    assert len([*(tmp_path / "made" / "pictures").iterdir()]) == FEW
    assert (tmp_path / "made" / "pictures" / "train-0000000.png").read_bytes() == (folder / names[0]).read_bytes()


@pytest.mark.parametrize("form", ["{}", "zip://1.png::{}", "zip://1.png::zip://2.zip::{}"])
def test_other_files_of_this_machine_are_refused(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even what else lies beside the caches: a token."""
    home = tmp_path / "home"
    (home / "hub").mkdir(parents=True)
    (home / "token").write_text("secret")
    monkeypatch.setattr("datasets.config.HF_CACHE_HOME", str(home))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", home / "datasets")
    _found([form.format(home / "token")] * FEW, monkeypatch)
    with pytest.raises(DataError, match="names a picture outside"):
        write_data_set("hub:people/dogs", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_folder_here_is_not_read_in_the_place_of_the_hubs(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "me" / "pictures").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert _told("hub:me/pictures", tmp_path).startswith("hub:me/pictures: me/pictures is a folder here")
