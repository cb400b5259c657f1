"""`rerank-translations`: lists of any toolkit are re-ranked by weights that are tuned on other lists."""

from pathlib import Path

import numpy as np
import pytest

from data.translators.nbest import Candidate, read_nbest
from modules.translators.nbest import compare
from pipeline.cli import main
from pipeline.translation.nbest import as_lists
from tests.modules.translators.test_mira import separable

pytestmark = pytest.mark.whole


def write_set(folder: Path, name: str, seed: int) -> tuple[list[str], list[str]]:
    """Lists of four candidates of which the reference has the highest a − 2 b; returns right ones and first ones."""
    features, counts = separable(seed)
    right = counts[..., :4].sum(-1).argmax(1)
    lines, best, first = [], [], []
    for number, (values, place) in enumerate(zip(features, right, strict=True)):
        reference = f"das ist ein Satz mit der Zahl {number} ."
        texts = [reference if k == place else f"{k} etwas anderes ist es hier {number}" for k in range(4)]
        lines += [
            f"{number} ||| {text} ||| a= {one[0]} b= {one[1]} c= {one[2]} ||| 0"
            for text, one in zip(texts, values, strict=True)
        ]
        best.append(reference)
        first.append(texts[0])
    (folder / f"{name}.lists").write_text("".join(f"{line}\n" for line in lines))
    (folder / f"{name}.de").write_text("".join(f"{line}\n" for line in best))
    return best, first


@pytest.mark.parametrize("language", ["ja", "Japanese", "jpn", "ja-JP"])
def test_a_language_may_be_written_in_several_ways(tmp_path: Path, language: str, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dev.ref").write_text("".join(f"赤い円が{number}個あります。\n" for number in range(20)))
    lines = [
        f"{number} ||| {text} ||| a= {value} ||| 0\n"
        for number in range(20) for value, text in ((1, f"赤い円が{number}個あります。"), (0, "犬"))
    ]  # fmt: skip
    Path("dev.lists").write_text("".join(lines))
    command = ["rerank-translations", "--tune", "dev.lists", "--references", "dev.ref", "--language"]
    assert main([*command, language]) == 0
    assert "100.0" in capsys.readouterr().out.split("BLEU", 1)[1].splitlines()[0]
    assert main([*command, language, "--n-best"]) == 1
    assert "--n-best chooses what --output FILE holds" in capsys.readouterr().err
    assert main([*command, "nonsense"]) == 1
    assert "--language: 'nonsense' is no language" in capsys.readouterr().err


def test_turkish_is_compared_by_its_own_small_letters() -> None:
    said, wanted = "solda ince kırmızı bir daire var .", "Solda İnce KIRMIZI bir daire var ."
    lists = as_lists([[Candidate(said, {"a": 1.0})]], [wanted], "tr")
    scored = compare({"it": [lists.texts[0]]}, lists.references, None, False, 10)
    assert [one.value for one in scored] == pytest.approx([100, 100, 0])  # BLEU, chrF, TER


@pytest.fixture
def files(tmp_path: Path, monkeypatch) -> Path:
    write_set(tmp_path, "dev", 3)
    write_set(tmp_path, "test", 4)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TUNE = ["rerank-translations", "--tune", "dev.lists", "--references", "dev.de", "--seeds", "2"]
APPLY = [*TUNE, "--lists", "test.lists", "--lists-references", "test.de"]


def test_weights_tuned_on_one_set_choose_in_another(files: Path, capsys) -> None:
    assert main([*APPLY, "--output", "new/best.de"]) == 0
    wanted, found = ((files / name).read_text().splitlines() for name in ("test.de", "new/best.de"))
    assert np.mean([one == other for one, other in zip(wanted, found, strict=True)]) > 0.95
    printed = capsys.readouterr().out
    for words in ("dev.lists: 150 sentences", "test.lists: 150 sentences", "as listed", "oracle", "weights: a +"):
        assert words in printed
    assert main([*APPLY, "--output", "best.lists", "--n-best", "--use", "b,a"]) == 0
    lists = read_nbest(files / "best.lists", 150)
    assert [one[0].text for one in lists].count("") == 0
    assert all(len(one) == 4 for one in lists)
    assert np.mean([one[0].text == other for one, other in zip(lists, wanted, strict=True)]) > 0.95


def test_without_other_lists_those_of_the_tuning_are_reranked(files: Path) -> None:
    assert main([*TUNE, "--output", "best.de"]) == 0
    wanted, found = ((files / name).read_text().splitlines() for name in ("dev.de", "best.de"))
    assert np.mean([one == other for one, other in zip(wanted, found, strict=True)]) > 0.95


def test_further_features_are_weighted_too(files: Path, capsys) -> None:
    candidates = [one for some in read_nbest(files / "dev.lists") for one in some]
    right = {*(files / "dev.de").read_text().splitlines()}
    (files / "dev.more").write_text("known\n" + "".join(f"{int(one.text in right)}\n" for one in candidates))
    assert main([*TUNE, "--features", "dev.more", "--use", "known", "--output", "best.de"]) == 0
    assert (files / "best.de").read_text() == (files / "dev.de").read_text()
    assert "weights: known +" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*TUNE, "--use", "a,x"], "dev.lists:1: no feature 'x'; it has a, b, c"),
        ([*TUNE, "--seeds", str(10**9)], "expected 1 to 1000"),
        ([*TUNE, "--seeds", "0"], "--seeds is 0; expected 1 to 1000"),
        ([*TUNE, "--output", "."], "--output .: is a folder"),
        ([*TUNE, "--lists-references", "test.de"], "--lists-references and --lists-features need --lists"),
        ([*TUNE, "--vse.epochs=3"], "takes no settings"),
        ([*TUNE, "--references", "short.de"], "short.de: 1 references, but dev.lists has candidates of 150 sentences"),
        ([*APPLY, "--lists", "broken.lists"], "broken.lists:2: 2 fields; expected"),
        ([*APPLY, "--lists", "nan.lists"], "nan.lists:2: feature a is 'nan'; expected a finite number"),
        ([*APPLY, "--lists", "gap.lists"], "gap.lists:2: sentence 2 after sentence 0; expected it or the next one"),
        ([*APPLY, "--lists", "uneven.lists"], "uneven.lists:2: no feature 'c'; it has a, b"),
        ([*TUNE, "--lists", "other.lists"], "other.lists:1: no feature 'b'; it has a"),
        ([*TUNE, "--tune", "nowhere.lists"], "nowhere.lists: no such file"),
    ],
)
def test_what_does_not_fit_is_one_line(files: Path, capsys, arguments: list[str], words: str) -> None:
    (files / "short.de").write_text("eins\n")
    (files / "broken.lists").write_text("0 ||| a ||| a= 1 b= 2 c= 3\n0 ||| a\n")
    for name, line in (("nan", "0 ||| b ||| a= nan b= 2 c= 3"), ("gap", "2 ||| b ||| a= 1 b= 2 c= 3"),
                       ("uneven", "0 ||| b ||| a= 1 b= 2")):  # fmt: skip
        (files / f"{name}.lists").write_text(f"0 ||| a ||| a= 1 b= 2 c= 3\n{line}\n")
    (files / "other.lists").write_text("0 ||| a ||| a= 1\n")
    assert main(arguments) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert words in line
