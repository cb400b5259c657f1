"""`bildwort init` on data sets of the library `datasets`: with metadata, saved, and in Parquet files."""

import json
import shutil
from io import BytesIO
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from PIL import Image

from data.errors import DataError
from data.own_captions.corpus import read_found
from data.own_captions.data_sets import write_data_set
from tests.data.networks import make_network
from tests.pipeline.init.own_pictures import COUNT, captions_of, draw_pictures, made, run


@pytest.fixture(scope="module")
def dino(tmp_path_factory) -> Path:
    return make_network("dino", tmp_path_factory.mktemp("networks") / "dino")


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> datasets.Dataset:
    """Pictures, each with two captions."""
    folder = tmp_path_factory.mktemp("pictures")
    names = draw_pictures(folder, COUNT)
    held = [{"path": name, "bytes": (folder / name).read_bytes()} for name in names]
    columns = {"id": list(map(str, range(COUNT))), "image": held,
               "captions": [[text, text + " again"] for text in names.values()]}  # fmt: skip
    return datasets.Dataset.from_dict(columns).cast_column("image", datasets.Image())


@pytest.mark.slow
def test_pictures_with_metadata_stay_where_they_are(tmp_path: Path, dino: Path) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    rows = [{"file_name": name, "text": text} for name, text in names.items()]
    (tmp_path / "mine" / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = "--backbone", str(dino), "--translator", "none"
    metadata = made(tmp_path / "metadata", str(tmp_path / "mine"), *options)
    assert metadata.corpus.root == str(tmp_path / "mine")
    assert captions_of(tmp_path / "metadata")["images"] == COUNT
    assert not (tmp_path / "metadata" / "made-data" / "pictures").exists()  # they stay where they are


def test_a_saved_data_set_keeps_its_splits_and_gets_the_one_it_lacks(
    tmp_path: Path, dino: Path, whole: datasets.Dataset
) -> None:
    options = "--backbone", str(dino), "--translator", "none"
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
    tmp_path: Path, whole: datasets.Dataset, dino: Path, monkeypatch
) -> None:
    """`load_dataset` is a stand-in: tests have no network."""
    asked: list[str] = []
    column = [["train", "val", "test"][min(2, number % 5)] for number in range(COUNT)]
    found = datasets.DatasetDict({"test": whole.add_column("split", column)})  # one split, the real ones in a column
    monkeypatch.setattr(datasets, "load_dataset", lambda name: asked.append(name) or found)
    work = tmp_path / "work"
    assert run(work, "init", "hub:somebody/pictures", "--backbone", str(dino), "--translator", "none") == 0
    assert asked == ["somebody/pictures"]
    assert (work / "pictures.yaml").is_file()
    lines = (work / "pictures-data" / "captions.tsv").read_text().splitlines()
    assert [line.split("\t")[3] for line in lines[::2]] == column


def _with_metadata(folder: Path) -> None:
    names = draw_pictures(folder, COUNT)
    rows = [{"file_name": name, "text": text} for name, text in names.items()]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_folder_that_init_has_not_written_is_never_deleted(tmp_path: Path, capsys) -> None:
    """Neither one that stands where the data set is to be written, nor the data set itself."""
    _with_metadata(tmp_path / "pets")
    (tmp_path / "pets-data").mkdir()
    (tmp_path / "pets-data" / "thesis.txt").write_text("of value")
    options = "--backbone", "built-in", "--translator", "none"
    for more in ((), ("--force",)):
        assert run(tmp_path, "init", "pets", *options, *more) == 1
        assert "pets-data: exists, and `init` has not written it" in capsys.readouterr().err
    assert (tmp_path / "pets-data" / "thesis.txt").read_text() == "of value"
    shutil.rmtree(tmp_path / "pets-data")
    (tmp_path / "pets").rename(tmp_path / "pets-data")
    assert run(tmp_path, "init", "pets-data", "--output", "pets.yaml", "--force", *options) == 1
    assert len(list((tmp_path / "pets-data").glob("*.png"))) == COUNT
    assert run(tmp_path, "init", "pets-data", *options) == 0
    capsys.readouterr()
    assert run(tmp_path, "init", "pets-data", "--output", "pets-data.yml", *options) == 1
    assert (
        "pets-data-data exists, where the data set is to be written; replace it by --force" in capsys.readouterr().err
    )
    assert run(tmp_path, "init", "pets-data", "--force", *options) == 0


def test_a_try_that_failed_is_repeated_without_force(tmp_path: Path, capsys) -> None:
    _with_metadata(tmp_path / "pets")
    assert run(tmp_path, "init", "pets", "--backbone", "./away") == 1
    assert not (tmp_path / "pets-data").exists()
    assert run(tmp_path, "init", "pets", "--backbone", "built-in", "--translator", "none") == 0


def test_bad_data_is_told_as_that_of_the_data_set(tmp_path: Path, capsys) -> None:
    _with_metadata(tmp_path / "pets")
    rows = (tmp_path / "pets" / "metadata.jsonl").read_text().splitlines()[:5]  # fewer than `init` takes
    (tmp_path / "pets" / "metadata.jsonl").write_text("\n".join(rows))
    shutil.copytree(tmp_path / "pets", tmp_path / r"my\data")
    for name in ("pets", r"my\data"):
        assert run(tmp_path, "init", name, "--backbone", "built-in", "--translator", "none") == 1
        assert f"error: {name}: 5 pictures with captions" in capsys.readouterr().err
    assert not (tmp_path / "pets-data").exists()
    (tmp_path / "pets" / "own.tsv").write_text("0.png\ten\ta dog\n1.png\ten\ta cat\n")
    assert run(tmp_path, "init", "pets", "--captions", "pets/own.tsv", "--backbone", "built-in") == 1
    assert "own.tsv: 2 pictures with captions" in capsys.readouterr().err  # a file of one's own keeps its name


def test_pictures_with_metadata_are_named_from_any_folder(tmp_path: Path, monkeypatch) -> None:
    _with_metadata(tmp_path / "pets")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    written = write_data_set("../pets", Path("made"))
    assert (written.root, written.pictures) == (tmp_path / "pets", ".")
    assert not (tmp_path / "work" / "made" / "pictures").exists()


def test_the_first_row_may_be_without_caption_and_its_picture_may_be_damaged(tmp_path: Path, whole) -> None:
    few = whole.remove_columns("id")
    rows = few.cast_column("image", datasets.Image(decode=False)).to_list()
    damaged = {"image": {"path": None, "bytes": b"no picture"}, "captions": []}
    datasets.Dataset.from_list([damaged, *rows], features=few.features).save_to_disk(tmp_path / "saved")
    written = write_data_set(str(tmp_path / "saved"), tmp_path / "made")
    first, *others = written.captions.read_text().splitlines()
    assert first == "picture-0000000.jpg\ten\t\t"
    assert len(others) == 2 * COUNT
    assert written.left == {"rows without a caption": ["row 0 of the data"]}
    assert len(list((tmp_path / "made" / "pictures").iterdir())) == COUNT + 1


def test_a_picture_of_a_phone_gets_an_ending_that_is_read(tmp_path: Path, whole: datasets.Dataset) -> None:
    """MPO: two JPEGs in one file."""
    image, held = Image.new("RGB", (20, 20)), BytesIO()
    image.save(held, "MPO", save_all=True, append_images=[image])
    row = {"image": {"path": None, "bytes": held.getvalue()}, "text": "a dog in the park"}
    features = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    datasets.Dataset.from_list([row], features=features).save_to_disk(tmp_path / "saved")
    written = write_data_set(str(tmp_path / "saved"), tmp_path / "made")
    assert written.captions.read_text().startswith("picture-0000000.jpg\t")
    assert (tmp_path / "made" / "pictures" / "picture-0000000.jpg").is_file()


def test_splits_go_by_how_their_names_begin(tmp_path: Path, whole: datasets.Dataset) -> None:
    ends = {"train": 10, "Validation": 15, "test_2016_flickr": 25, "extra": COUNT}
    starts = [0, *ends.values()]
    parts = {name: whole.select(range(start, end)) for start, (name, end) in zip(starts, ends.items(), strict=False)}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "saved")
    written = write_data_set(str(tmp_path / "saved"), tmp_path / "made")
    splits = [line.split("\t")[3] for line in written.captions.read_text().splitlines()[::2]]
    assert splits == ["train"] * 10 + ["val"] * 5 + ["test"] * 10 + ["train"] * 5
    assert written.form == "a saved data set"
    datasets.DatasetDict({name: parts[name] for name in ("train", "Validation")}).save_to_disk(tmp_path / "two")
    assert (
        write_data_set(str(tmp_path / "two"), tmp_path / "two made").form
        == "a saved data set, its test drawn from train"
    )


def test_a_column_s_language_is_the_one_that_its_name_has(tmp_path: Path, whole: datasets.Dataset) -> None:
    """All is English here, whatever the name says; `text_id` and `caption_url` are no captions."""
    made = whole.remove_columns(["id", "captions"])
    for name in ("de", "caption_cs", "text_deu", "text", "text_id", "caption_url"):
        made = made.add_column(name, ["A man is riding his bicycle through the park"] * COUNT)
    made.save_to_disk(tmp_path / "saved")
    lines = write_data_set(str(tmp_path / "saved"), tmp_path / "made").captions.read_text().splitlines()
    assert [line.split("\t")[1] for line in lines[:4]] == ["de", "cs", "de", "en"]
    assert len(lines) == 4 * COUNT


def test_a_picture_that_stands_in_several_rows_is_one_picture(tmp_path: Path, whole: datasets.Dataset) -> None:
    """A row for each caption: else copies of a picture would be in training and in the test."""
    few = whole.select([number // 2 for number in range(2 * COUNT)]).remove_columns("captions")
    few.add_column("caption", [f"a dog in the park, {number}" for number in range(2 * COUNT)]).save_to_disk(
        tmp_path / "s"
    )
    written = write_data_set(str(tmp_path / "s"), tmp_path / "made")
    names = [line.split("\t")[0] for line in written.captions.read_text().splitlines()]
    assert len(names) == 2 * COUNT
    assert names[::2] == names[1::2]
    assert {path.name for path in (tmp_path / "made" / "pictures").iterdir()} == {*names}
    assert len({*names}) == COUNT


def _options(*more: str) -> list[str]:
    return ["--backbone", "built-in", "--translator", "none", *more]


def _outside(tmp_path: Path) -> list[dict[str, object]]:
    """Ten pictures, of which the last is somebody's secret."""
    names = draw_pictures(tmp_path / "elsewhere", 10)
    (tmp_path / "secret").write_text("of somebody")
    held = [{"path": name, "bytes": (tmp_path / "elsewhere" / name).read_bytes()} for name in names]
    return [*held[:-1], {"path": str(tmp_path / "secret"), "bytes": None}]


@pytest.mark.parametrize("form", ["parquet", "disk", "metadata", "link"])
def test_a_picture_outside_the_data_set_is_refused(form: str, tmp_path: Path, capsys) -> None:
    folder, held = tmp_path / "mine", _outside(tmp_path)
    features = datasets.Features({"image": datasets.Image(decode=False), "text": datasets.Value("string")})
    rows = datasets.Dataset.from_list([{"image": one, "text": f"a dog, {k}"} for k, one in enumerate(held)], features)
    folder.mkdir()
    if form == "parquet":
        rows.to_parquet(folder / "train.parquet")
    elif form == "disk":
        rows.with_format("arrow").save_to_disk(folder)
        table = next(folder.glob("*.arrow"))
        table.write_bytes(b"")
        with pa.OSFile(str(table), "wb") as file, pa.ipc.new_stream(file, rows.data.schema) as writer:
            writer.write_table(rows.data.table)
    else:
        names = draw_pictures(folder, 9)
        (folder / "away.png").symlink_to(tmp_path / "secret")
        last = "../secret" if form == "metadata" else "away.png"
        lines = [json.dumps({"file_name": name, "text": "a dog"}) for name in [*names, last]]
        (folder / "metadata.jsonl").write_text("\n".join(lines))
    assert run(tmp_path, "init", "mine", *_options()) == 1
    assert "names a picture outside its folder" in capsys.readouterr().err
    assert not (tmp_path / "mine-data").exists()


def test_files_are_named_to_the_library_which_would_guess_others(tmp_path: Path, whole: datasets.Dataset) -> None:
    """Parquet files of other folders are not read, and a split is no split because a folder or picture is called so."""
    for name, count in (("holiday [2024]", 24), ("holiday [2024]/other", 20)):
        (tmp_path / name).mkdir()
        whole.select(range(count)).to_parquet(tmp_path / name / "validation.parquet")
    written = write_data_set(str(tmp_path / "holiday [2024]"), tmp_path / "made")
    assert len({line.split("\t")[0] for line in written.captions.read_text().splitlines()}) == 24
    assert written.left == {"Parquet files of other folders": ["other/validation.parquet"]}
    for name in ("a", "b"):
        (tmp_path / "two" / name).mkdir(parents=True)
        whole.to_parquet(tmp_path / "two" / name / "train.parquet")
    with pytest.raises(DataError, match="several folders hold Parquet files: a, b; name one of them"):
        write_data_set(str(tmp_path / "two"), tmp_path / "none")


def test_metadata_of_several_folders_is_read_and_folders_may_be_splits(tmp_path: Path) -> None:
    for place, name in enumerate(("train", "test")):
        drawn = list(draw_pictures(tmp_path / "mine [2024]" / name, 24).items())[12 * place :][:12]
        rows = [f"{one},{text}" for one, text in drawn]
        text = "\n".join(["file_name,caption", *rows])
        (tmp_path / "mine [2024]" / name / "metadata.csv").write_text(text)
        draw_pictures(tmp_path / "root" / name, 12)
    written = write_data_set(str(tmp_path / "mine [2024]"), tmp_path / "made")
    lines = [line.split("\t") for line in written.captions.read_text().splitlines()]
    assert {(line[0].partition("/")[0], line[3]) for line in lines} == {
        ("train", "train"),
        ("train", "val"),
        ("test", "test"),
    }
    assert len(lines) == 24
    (tmp_path / "root" / "train" / "0.png").rename(tmp_path / "root" / "train.png")
    names = ["train.png", *[f"{split}/{number}.png" for split in ("train", "test") for number in range(1, 12)]]
    (tmp_path / "root" / "metadata.csv").write_text(
        "\n".join(["file_name,text", *[f"{name},a dog {k}" for k, name in enumerate(names)]])
    )
    written = write_data_set(str(tmp_path / "root"), tmp_path / "root made")
    splits = {line.split("\t")[0]: line.split("\t")[3] for line in written.captions.read_text().splitlines()}
    assert splits["train.png"] in ("train", "val")
    assert splits["test/3.png"] == "test"
    assert written.left == {"pictures without a caption": ["test/0.png"]}


def test_what_is_left_out_is_counted_and_named(tmp_path: Path, capsys) -> None:
    names = list(draw_pictures(tmp_path / "mine", 26))[:24]
    texts = ["NA", "null", '""', '"  "', "nan", "", "none"]
    rows = [f"{name},{texts[k] if k < len(texts) else f'a dog in the park {k}'}" for k, name in enumerate(names)]
    (tmp_path / "mine" / "metadata.csv").write_text("\n".join(["file_name,caption", *rows]))
    assert run(tmp_path, "init", "mine", *_options()) == 0
    said = capsys.readouterr().out
    assert "17 pictures with captions" in said
    assert "left out  7 rows without a caption: row 0 of" in said
    assert "left out  2 pictures without a caption: 24.png, 25.png" in said
    assert run(tmp_path, "prepare", "./mine.yaml") == 0
    (report,) = (tmp_path / "artifacts" / "jobs" / "corpus").glob("*/report.json")
    found = {one["what"]: one["count"] for one in json.loads(report.read_text())["findings"]}
    assert found["lines left out, as a sentence is empty"] == 7
    assert found["pictures without a caption"] == 9  # without one, a picture is not read


def test_languages_are_detected_over_all_splits_together(tmp_path: Path) -> None:
    """The few short captions of a test tell none, and would be taken for English."""
    captions = {"train": ["ein Hund rennt am Strand", "zwei Männer spielen Fußball"] * 6, "test": ["Rad", "Auto"]}
    for split, texts in captions.items():
        names = draw_pictures(tmp_path / "mine" / split, len(texts))
        rows = "".join(f"{name},{text}\n" for name, text in zip(names, texts, strict=True))
        (tmp_path / "mine" / split / "metadata.csv").write_text(f"file_name,caption\n{rows}", encoding="utf-8")
    written = write_data_set(str(tmp_path / "mine"), tmp_path / "made")
    assert {line.split("\t")[1] for line in written.captions.read_text("utf-8").splitlines()} == {"de"}
    assert written.languages == (["de"], True)


def test_a_column_of_languages_is_read(tmp_path: Path) -> None:
    names = draw_pictures(tmp_path / "mine", 12)
    rows = [f"{name},{'da' if k % 2 else 'Dutch'},en hund {k}" for k, name in enumerate(names)]
    table = tmp_path / "mine" / "metadata.csv"
    table.write_text("\n".join(["file_name,language,caption", *rows, "0.png,,"]))
    written = write_data_set(str(tmp_path / "mine"), tmp_path / "made")
    lines = [line.split("\t") for line in written.captions.read_text().splitlines()]
    assert [line[1] for line in lines] == [*["nl", "da"] * 6, "en"]
    assert {one.language for one in read_found(written)[1].captions} == {"nl", "da"}  # the last has no caption
    assert written.languages is None  # nothing is detected
    table.write_text(table.read_text().replace("Dutch", "a dog"))
    with pytest.raises(DataError, match=r"row 0 of .*: language 'a dog', expected a code"):
        write_data_set(str(tmp_path / "mine"), tmp_path / "made")
