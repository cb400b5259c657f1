"""Somebody's own pictures and captions are a corpus; what does not fit is named by file and line."""

import pickle
from pathlib import Path

import pytest

from data.corpora.caption_files import as_tables, tables_in
from data.corpora.folder import FolderSettings, read, sources
from data.errors import BadLinesError, DataError
from tests.data.layouts import write_folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_folder(tmp_path, size=60)
    return tmp_path


def lines(root: Path) -> list[str]:
    return (root / "captions.tsv").read_text().splitlines()


def write(root: Path, *more: str, name: str = "captions.tsv") -> None:
    (root / name).write_text("".join(f"{line}\n" for line in more), encoding="utf-8")


def test_pictures_and_captions_are_read(root: Path) -> None:
    corpus = read(FolderSettings(), root, root)
    assert len(corpus.captions) == 120
    first = corpus.captions[0]
    assert (first.image_id, first.language) == ("0.png", "en")
    assert f"{first.image_id}\t{first.language}\t{first.text}" == lines(root)[0]
    assert corpus.place(first, "en") == f"{root}/captions.tsv:1"
    assert corpus.pictures["7.png"] == root / "pictures" / "7.png"
    assert corpus.regions is None
    assert {caption.split for caption in corpus.captions} == {"train", "val", "test"}
    assert set(sources(FolderSettings(), root)) == {root / "captions.tsv", *(root / "pictures").iterdir()}


def test_languages_and_splits_are_written_in_many_ways(root: Path) -> None:
    write(root, "0.png\tEN\tA dog\tTrain", "1.png\ten-US\tA cat\tvalidation", "2.png\tGerman\tEin Ball\tdev",
          "3.png\tdeu\tEin Hut\tTesting", "4.png\tzh_Hans\t一只狗\trestval")  # fmt: skip
    found = [(one.language, one.split) for one in read(FolderSettings(), root, root).captions]
    assert found == [("en", "train"), ("en", "val"), ("de", "val"), ("de", "test"), ("zh", "train")]
    write(root, "0.png\tA dog", name="captions.EN.tsv")
    write(root, "0.png\tEin Hund", name="captions.deu.tsv")
    write(root, "English\tGerman", "a dog\tein Hund", name="parallel.tsv")
    read_again = read(FolderSettings(captions="captions.*.tsv", parallel="parallel.tsv"), root, root)
    assert [one.caption_id for one in read_again.captions] == ["0.png#en1", "0.png#de1"]
    assert [one.texts for one in read_again.pairs] == [{"en": "a dog", "de": "ein Hund"}]
    write(root, "0.png\tEin Hut", name="captions.de.tsv")
    with pytest.raises(DataError, match=r"captions.deu.tsv: captions in 'de', as captions.de.tsv has too; keep one"):
        read(FolderSettings(captions="captions.*.tsv"), root, root)


@pytest.mark.parametrize("name", ["captions", "parallel"])
def test_a_link_out_of_the_data_root_is_read_by_its_own_path_alone(root: Path, tmp_path: Path, name: str) -> None:
    write(root, "en\tde", "a dog\tein Hund", name="parallel.tsv")
    place = tmp_path.with_name(f"{tmp_path.name}-elsewhere.tsv")
    (root / f"{name}.tsv").rename(place)
    (root / f"{name}.tsv").symlink_to(place)
    with pytest.raises(DataError, match=rf"{name}.tsv: a link out of .*; put the file itself there, or name it by its"):
        read(FolderSettings(parallel="parallel.tsv"), root, root)
    corpus = read(FolderSettings(**{"parallel": "parallel.tsv", name: str(place)}), root, root)
    assert (len(corpus.captions), len(corpus.pairs)) == (120, 1)
    (linked := place.with_suffix("")).symlink_to(root)
    (root / f"{name}.tsv").unlink()
    place.rename(root / f"{name}.tsv")
    assert len(read(FolderSettings(), linked, root).captions) == 120


def test_a_table_a_language(root: Path) -> None:
    write(root, "0.png\tA dog", "0.png\tA cat", name="captions.en.tsv")
    write(root, "1.png\tEin Hund\tval", "0.png\tEine Katze", name="captions.de.tsv")
    write(root, "0.png\tnot read", name="captions.notes.tsv")
    (root / "pictures" / "elsewhere.tsv").write_text("0.png\tPas lu")
    (root / "texts").mkdir()
    (root / "texts" / "captions.en.tsv").write_text("0.png\tA dog")
    (root / "texts" / "captions.fr.tsv").symlink_to(root / "pictures" / "elsewhere.tsv")
    inside = read(FolderSettings(captions="texts/captions.*.tsv"), root, root)
    assert [one.language for one in inside.captions] == ["en"]
    settings = FolderSettings(captions="captions.*.tsv")
    corpus = read(settings, root, root)
    assert [(one.caption_id, one.language, one.text) for one in corpus.captions] == [
        ("1.png#de1", "de", "Ein Hund"), ("0.png#de2", "de", "Eine Katze"), ("0.png#en1", "en", "A dog"),
        ("0.png#en2", "en", "A cat"),
    ]  # fmt: skip
    assert corpus.place(corpus.captions[1], "de") == f"{root}/captions.de.tsv:2"
    assert {*sources(settings, root)} >= {root / "captions.de.tsv", root / "captions.en.tsv"}
    write(root, "0.png\ten\tA dog\ttrain", name="captions.de.tsv")
    with pytest.raises(
        BadLinesError, match=r"captions.de.tsv:1: 4 fields, expected picture TAB caption, and if wanted"
    ):
        read(settings, root, root)
    with pytest.raises(DataError, match=r"no table of captions of that form; expected texts.en.csv and others"):
        read(FolderSettings(captions="texts.*.csv"), root, root)


@pytest.mark.parametrize(
    ("names", "form"),
    [
        (["captions.de-AT.tsv", "captions.en.tsv"], "captions.*.tsv"), (["zh_TW.csv", "en_GB.csv"], "*.csv"),
        (["my_de.tsv", "my_en.tsv"], "my_*.tsv"),  # `my` is Burmese
        (["captions.en-GB.tsv", "captions.en-US.tsv"], None), (["a.new.tsv", "a.en.tsv"], None),
    ],
)  # fmt: skip
def test_tables_are_named_by_codes_with_regions_or_without(names: list[str], form: str | None, root: Path) -> None:
    for name in names:
        write(root, "0.png\tA dog", name=name)
    together = as_tables(sorted(root / name for name in names))
    assert together == (form and root / form)
    if together is not None:
        assert sorted(path.name for path in tables_in(together)) == sorted(names)


def test_a_drawn_split_stays_when_others_come(root: Path) -> None:
    before = {caption.image_id: caption.split for caption in read(FolderSettings(), root, root).captions}
    write_folder(root, size=90)
    after = {caption.image_id: caption.split for caption in read(FolderSettings(), root, root).captions}
    assert len(after) == 90
    assert before.items() <= after.items()
    of_test = sum(split == "test" for split in after.values())
    assert 2 <= of_test <= 20
    shares = FolderSettings(validation=0.0, test=0.0)
    assert {caption.split for caption in read(shares, root, root).captions} == {"train"}


def test_given_splits_a_header_and_windows_line_ends(root: Path) -> None:
    write(
        root,
        "picture\tlanguage\tcaption\tsplit",
        "0.png\ten\tA dog\ttest\r",
        "",
        "1.png\ten\t\tval",
        "1.png\ten\tA cat\tval",
    )
    corpus = read(FolderSettings(columns=["picture", "-", "caption:de", "split"]), root, root)
    assert {one.language for one in corpus.captions} == {"de"}  # whatever the header says
    corpus = read(FolderSettings(), root, root)
    assert [(one.image_id, one.text, one.split) for one in corpus.captions] == [
        ("0.png", "A dog", "test"), ("1.png", "A cat", "val"),
    ]  # fmt: skip
    assert corpus.empty == [f"{root}/captions.tsv:4"]
    assert list(corpus.pictures) == ["0.png", "1.png"]


def test_without_a_column_of_languages_they_are_named_or_detected(root: Path) -> None:
    write(root, "File_name\tcaption\tsplit", "0.png#0\tA dog is on the beach\tval", "0.png#1\tA dog\ttest")
    with pytest.raises(DataError, match=r"captions\.tsv:3: .* is in test, but in val at"):
        read(FolderSettings(languages=["en"]), root, root)
    write(
        root, "0.png#0\tA dog is on the beach\ttest", "0.png#1\tEin Hund steht auf der Wiese\ttest", "1.png\tTwo cats"
    )
    corpus = read(FolderSettings(languages=["en", "de"]), root, root)
    assert [(one.image_id, one.language) for one in corpus.captions] == [
        ("0.png", "en"), ("0.png", "de"), ("1.png", "en"),
    ]  # fmt: skip
    corpus = read(FolderSettings(languages=["fr"]), root, root)
    assert {one.language for one in corpus.captions} == {"fr"}
    with pytest.raises(DataError, match=r"captions\.tsv:1: language 'A dog is on the beach', expected a code"):
        read(FolderSettings(), root, root)
    write(root, "0.png\ten\tA dog\ttest")
    with pytest.raises(DataError, match=r"captions\.tsv:1: 4 fields, expected picture TAB caption, and"):
        read(FolderSettings(languages=["en"]), root, root)
    with pytest.raises(DataError, match="languages has 'English', expected codes"):
        read(FolderSettings(languages=["English"]), root, root)


def test_several_columns_of_captions(root: Path) -> None:
    write(root, "image\tcaption_en\tcaption_de\tsplit", "0.png\tA dog\tEin Hund\ttest", "1.png\t\tEine Katze\tval")
    corpus = read(FolderSettings(), root, root)
    assert [(one.caption_id, one.language, one.text, one.split) for one in corpus.captions] == [
        ("0.png#2", "en", "A dog", "test"), ("0.png#2.2", "de", "Ein Hund", "test"),
        ("1.png#3", "de", "Eine Katze", "val"),
    ]  # fmt: skip
    write(root, "image\tcaption_1\tcaption_2", "0.png\tA dog is here\tA cat", "1.png\tNA\t")
    corpus = read(FolderSettings(languages=["en"]), root, root)
    assert [(one.caption_id, one.text) for one in corpus.captions] == [
        ("0.png#2", "A dog is here"),
        ("0.png#2.2", "A cat"),
    ]
    assert corpus.empty == [f"{root}/captions.tsv:3"]
    with pytest.raises(DataError, match="no column of languages; set corpus"):
        read(FolderSettings(), root, root)
    write(root, "0.png\tA dog\tEin Hund")
    columns = ["picture", "caption:en", "caption:de"]
    assert [one.language for one in read(FolderSettings(columns=columns), root, root).captions] == ["en", "de"]
    for wrong in (["picture", "caption:English"], ["picture", "split"], ["caption:en"], [*columns, "picture"]):
        with pytest.raises(DataError, match="columns are"):
            read(FolderSettings(columns=wrong), root, root)


def test_a_picture_is_found_however_its_accents_are_written(root: Path) -> None:
    (root / "pictures" / "0.png").rename(root / "pictures" / "Mu\u0308he.png")
    write(root, "M\u00fche.png\ten\tone of these", "Mu\u0308he.png\tde\teiner davon")
    write(root, "picture\ten\tde", "Mu\u0308he.png\tone\teiner", name="parallel.tsv")
    corpus = read(FolderSettings(parallel="parallel.tsv"), root, root)
    assert {caption.image_id for caption in corpus.captions} == {"M\u00fche.png"} == set(corpus.pictures)
    assert corpus.pairs[0].image_id == "M\u00fche.png"
    assert corpus.pictures["M\u00fche.png"].is_file()


def test_parallel_text_about_pictures_and_about_none(root: Path) -> None:
    write(root, "0.png\ten\tA dog\ttest", "1.png\ten\tA cat\ttrain")
    write(root, "picture\ten\tde", "0.png\tA dog\tEin Hund", "1.png\tA cat\tEine Katze", "\tA house\tEin Haus",
          "\tA\t", name="parallel.tsv")  # fmt: skip
    corpus = read(FolderSettings(parallel="parallel.tsv"), root, root)
    assert [(pair.image_id, pair.split, pair.texts["de"]) for pair in corpus.pairs] == [
        ("0.png", "test", "Ein Hund"), ("1.png", "train", "Eine Katze"), (None, "train", "Ein Haus"),
    ]  # fmt: skip
    assert corpus.place(corpus.pairs[1], "en") == f"{root}/parallel.tsv:3"
    assert corpus.empty == [f"{root}/parallel.tsv:5"]
    write(root, "en\tde\tcs", "A dog\tEin Hund\t", "", "A cat\t\tKočka", "\tHaus\t", name="parallel.tsv")
    corpus = read(FolderSettings(parallel="parallel.tsv"), root, root)  # two languages of three are a pair
    assert [pair.texts for pair in corpus.pairs] == [{"en": "A dog", "de": "Ein Hund"}, {"en": "A cat", "cs": "Kočka"}]
    assert corpus.empty == [f"{root}/parallel.tsv:5"]
    write(root, "en\tde", "A dog\tEin Hund", name="parallel.tsv")
    assert read(FolderSettings(parallel="parallel.tsv"), root, root).pairs[0].image_id is None


def test_a_text_beside_each_picture(root: Path) -> None:
    pictures = root / "pictures"
    (pictures / "0.png").rename(pictures / "Mu\u0308he.png")
    write(pictures, "A dog\ton the beach", "", "Two dogs\r", name="Mu\u0308he.txt")
    write(pictures, "A cat", name="1.png.txt")
    write(pictures, " ", name="2.txt")
    write(pictures, "about all pictures", name="readme.txt")
    (pictures / "3.txt").symlink_to(root / "captions.tsv")  # out of the folder
    of_texts = FolderSettings(captions="pictures", languages=["en"])
    corpus = read(of_texts, root, root)
    assert [(one.image_id, one.text) for one in corpus.captions] == [
        ("1.png", "A cat"), ("M\u00fche.png", "A dog\ton the beach"), ("M\u00fche.png", "Two dogs"),
    ]  # fmt: skip
    assert corpus.place(corpus.captions[2], "en") == f"{pictures}/Mu\u0308he.txt:3"
    assert corpus.empty == [f"{pictures}/2.txt:1"]
    assert corpus.stray == [f"{pictures}/readme.txt"]
    assert {path.name for path in sources(of_texts, root) if path.suffix == ".txt"} == {
        "Mu\u0308he.txt", "1.png.txt", "2.txt",
    }  # fmt: skip
    write(pictures, "A cat again", name="1.txt")
    with pytest.raises(DataError, match=r"1\.txt: captions of picture '1\.png', which .*1\.png\.txt has too; keep one"):
        read(of_texts, root, root)
    with pytest.raises(DataError, match=r"no column of languages; set corpus\.languages"):
        read(FolderSettings(captions="pictures"), root, root)


def test_texts_of_another_folder_are_named_as_the_pictures(root: Path) -> None:
    (root / "texts" / "sub").mkdir(parents=True)
    (root / "pictures" / "sub").mkdir()
    (root / "pictures" / "0.png").rename(root / "pictures" / "sub" / "0.png")
    write(root / "texts", "A dog", name="sub/0.txt")
    corpus = read(FolderSettings(captions="texts", languages=["en"]), root, root)
    assert [(one.image_id, one.text) for one in corpus.captions] == [("sub/0.png", "A dog")]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["0.png\ten"], r"captions\.tsv:1: 2 fields, expected picture TAB language TAB caption"),
        (["0.png\ten\tA dog", "gone.png\ten\tA dog"], r"captions\.tsv:2: no picture 'gone\.png' in /.*/pictures"),
        (["../captions.tsv\ten\tA dog"], "no picture '../captions.tsv'"),
        (["/etc/passwd\ten\tA dog"], "no picture '/etc/passwd'"),
        (["away.png\ten\tA dog"], r"'away\.png' in /.*s \(a link out of the folder\); put the picture itself there"),
        (["phone.HEIC\ten\tA dog"], r"\(not a picture by its name\); expected .* \.bmp, .*: convert it to JPEG"),
        (["9.PNG\ten\tA dog"], r"'9\.PNG' in /.*/pictures; did you mean 9\.png\?"),
        (["Sub\\8.png\ten\tA dog"], r"'Sub\\8\.png' in /.*/pictures; did you mean sub/8\.png\?"),
        (["sub/8\ten\tA dog"], r"'sub/8' in /.*; it may be sub/8\.jpg or sub/8\.png: name it with its ending"),
        (["0.png\tEnglisch\tA dog"], "language 'Englisch', expected a code like en or de"),
        (["0.png\ten\tA dog\tlater"], "split 'later', expected train, val, test"),
        (["0.png\ten\tA dog\tval", "0.png\tde\tEin Hund\ttest"], "is in test, but in val at .*captions.tsv:1"),
        ([], "no caption; expected picture TAB language TAB caption"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(root: Path, wrong: list[str], said: str) -> None:
    (root / "pictures" / "away.png").symlink_to("/etc/passwd")
    (root / "pictures" / "sub").mkdir()
    for name in ("phone.HEIC", "sub/8.png", "sub/8.jpg"):
        (root / "pictures" / name).touch()
    write(root, *wrong)
    with pytest.raises(DataError, match=said):
        read(FolderSettings(), root, root).require_pictures()


def test_all_bad_lines_are_told_at_once(root: Path) -> None:
    write(root, "0.png\ten\tA dog\tval", "gone.png\ten\tA dog", "1.png\ten", "1.png\tEnglisch\tA dog",
          "1.png\ten\tA dog\tlater", "0.png\ten\tA dog\ttest", "1.png\ten\t", "2.png\ten\tA cat")  # fmt: skip
    raw = (root / "captions.tsv").read_bytes().replace(b"A cat", b"K\xe4tzchen") + b"gone\xe4.png\ten\tA dog\n"
    (root / "captions.tsv").write_bytes(raw)
    write(root, "en\tde", "A dog", "A cat\tEine Katze", "A\tb\tc", name="parallel.tsv")
    with pytest.raises(BadLinesError) as caught:
        read(FolderSettings(parallel="parallel.tsv"), root, root)
    file = root / "captions.tsv"
    told = dict(problem.split(": ", 1) for problem in caught.value.told)
    assert {place: problem.split(",")[0] for place, problem in told.items()} == {
        # line 9 once, without a picture
        f"{file}:8": "not UTF-8 (invalid continuation byte); convert the file to UTF-8 (`CSV UTF-8` in Excel)",
        f"{file}:9": "not UTF-8 (invalid continuation byte); convert the file to UTF-8 (`CSV UTF-8` in Excel)",
        f"{file}:2": f"no picture 'gone.png' in {root}/pictures; name it by its path in that folder",
        f"{file}:3": "2 fields", f"{file}:4": "language 'Englisch'", f"{file}:5": "split 'later'",
        f"{file}:6": "picture '0.png' is in test",
        f"{root}/parallel.tsv:2": "1 fields", f"{root}/parallel.tsv:4": "3 fields",
    }  # fmt: skip
    assert str(caught.value) == f"{caught.value.told[0]} (and 8 more)"
    again = pickle.loads(pickle.dumps(caught.value))  # from a job's process
    assert (again.told, str(again)) == (caught.value.told, str(caught.value))


def test_of_many_bad_lines_ten_are_told(root: Path) -> None:
    write(root, *[f"gone{number}.png\ten\tA dog" for number in range(1234)])
    with pytest.raises(BadLinesError) as caught:
        read(FolderSettings(), root, root)
    assert len(caught.value.told) == 11
    assert "captions.tsv:10: no picture 'gone9.png'" in caught.value.told[9]
    assert caught.value.told[10] == "1,224 more lines do not fit"


def test_bad_lines_of_texts_are_told_at_once(root: Path) -> None:
    for name, raw in (("0.txt", b"a dog\nK\xe4tzchen"), ("1.txt", b"\xe4"), ("1.png.txt", b"a cat")):
        (root / "pictures" / name).write_bytes(raw)
    with pytest.raises(BadLinesError) as caught:
        read(FolderSettings(captions="pictures", languages=["en"]), root, root)
    assert [problem.split(": ")[0] for problem in caught.value.told] == [
        f"{root}/pictures/0.txt:2", f"{root}/pictures/1.txt",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["A dog\tEin Hund!"], r"parallel\.tsv:1: .*expected a header"), (["en"], "expected a header"),
        ([], "expected a header"),
        (["en\tde", "A dog"], r"parallel\.tsv:2: 1 fields, expected 2"),
        (["picture\ten\tde", "gone.png\tA dog\tEin Hund"], r"parallel\.tsv:2: no picture 'gone\.png'"),
    ],
)  # fmt: skip
def test_parallel_text_that_does_not_fit_is_named(root: Path, wrong: list[str], said: str) -> None:
    write(root, *wrong, name="parallel.tsv")
    with pytest.raises(DataError, match=said):
        read(FolderSettings(parallel="parallel.tsv"), root, root).require_pictures()


def test_settings_that_do_not_fit_are_one_line(root: Path) -> None:
    with pytest.raises(DataError, match="set BILDWORT_DATA"):
        read(FolderSettings(), None, root)
    with pytest.raises(DataError, match=r"test is 1\.5; expected a share"):
        read(FolderSettings(test=1.5), root, root)
    with pytest.raises(DataError, match="no such folder"):
        read(FolderSettings(pictures="gone"), root, root)
