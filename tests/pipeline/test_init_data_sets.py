"""`bildwort init` on data sets of the library `datasets`: with metadata, saved, and in Parquet files."""

import json
from pathlib import Path

import datasets
import pytest

from data.errors import DataError
from pipeline.own.datasets_of import write_data_set
from tests.data.networks import make_network
from tests.pipeline.own_pictures import COUNT, captions_of, draw_pictures, made, run


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Path:
    return make_network("clip", tmp_path_factory.mktemp("networks") / "clip")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> datasets.Dataset:
    """Pictures, each with two captions."""
    folder = tmp_path_factory.mktemp("pictures")
    names = draw_pictures(folder, COUNT)
    columns = {"id": list(map(str, range(COUNT))), "image": [str(folder / name) for name in names],
               "captions": [[text, text + " again"] for text in names.values()]}  # fmt: skip
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


@pytest.mark.slow
def test_pictures_with_metadata_stay_where_they_are(tmp_path: Path, clip: Path) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    rows = [{"file_name": name, "text": text} for name, text in names.items()]
    (tmp_path / "mine" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = "--backbone", str(clip), "--translator", "none"
    metadata = made(tmp_path / "metadata", str(tmp_path / "mine"), *options)
    assert metadata.corpus.root == str(tmp_path / "mine")
    assert captions_of(tmp_path / "metadata")["images"] == COUNT
    assert not (tmp_path / "metadata" / "made-data" / "pictures").exists()  # they stay where they are


def test_a_saved_data_set_keeps_its_splits_and_gets_the_one_it_lacks(
    tmp_path: Path, clip: Path, whole: datasets.Dataset
) -> None:
    options = "--backbone", str(clip), "--translator", "none"
    parts = {"train": whole.select(range(24)), "validation": whole.select(range(24, COUNT))}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    saved = made(tmp_path / "disk", str(tmp_path / "saved"), *options)
    assert saved.corpus.root == str(tmp_path / "disk" / "made-data")
    assert captions_of(tmp_path / "disk")["captions"] == 2 * COUNT
    lines = (tmp_path / "disk" / "made-data" / "captions.tsv").read_text().splitlines()
    splits = [line.split("\t")[3] for line in lines]
    assert splits[48:] == ["val"] * 12
    assert {*splits[:48]} == {"train", "test"}  # a test is drawn from those that train


def test_parquet_files_of_the_hub(tmp_path: Path, whole: datasets.Dataset) -> None:
    (tmp_path / "hub" / "data").mkdir(parents=True)
    whole.rename_column("captions", "text").to_parquet(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet")
    written = write_data_set(str(tmp_path / "hub"), tmp_path / "made")
    assert (written.root, written.pictures, written.drawn) == (tmp_path / "made", "pictures", True)
    first = written.captions.read_text().splitlines()[0].split("\t")
    assert first == ["train-0000000.png", "en", whole[0]["captions"][0], ""]
    assert len(list((tmp_path / "made" / "pictures").iterdir())) == COUNT


def test_what_is_missing_is_told(tmp_path: Path, whole: datasets.Dataset) -> None:
    for number, (lacks, told) in enumerate({
        "captions": "no column of captions among id, image", "image": "no column of pictures among id, captions",
    }.items()):  # fmt: skip
        whole.remove_columns(lacks).save_to_disk(tmp_path / str(number))
        with pytest.raises(DataError, match=told):
            write_data_set(str(tmp_path / str(number)), tmp_path / "made")
    (tmp_path / "0" / "state.json").write_text("{")
    with pytest.raises(DataError, match="no data set that `datasets` can read") as caught:
        write_data_set(str(tmp_path / "0"), tmp_path / "made")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "made").exists()


def test_a_data_set_of_the_hub_goes_by_its_name(
    tmp_path: Path, whole: datasets.Dataset, clip: Path, monkeypatch
) -> None:
    """`load_dataset` is a stand-in: tests have no network."""
    asked: list[str] = []
    column = [["train", "val", "test"][min(2, number % 5)] for number in range(COUNT)]
    found = datasets.DatasetDict({"test": whole.add_column("split", column)})  # one split, the real ones in a column
    monkeypatch.setattr(datasets, "load_dataset", lambda name: asked.append(name) or found)
    work = tmp_path / "work"
    assert run(work, "init", "hub:somebody/pictures", "--backbone", str(clip), "--translator", "none") == 0
    assert asked == ["somebody/pictures"]
    assert (work / "pictures.yaml").is_file()
    lines = (work / "pictures-data" / "captions.tsv").read_text().splitlines()
    assert [line.split("\t")[3] for line in lines[::2]] == column
