"""Pictures of grounding and of the joint space: every model is drawn, and the same each time."""

from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from data.captions.described_images import DescribedImages
from data.captions.table import Caption, write_captions
from data.pictures.pixels import open_images
from data.pictures.regions import RegionStore, write_regions
from data.text.text_inputs import WordVocabulary
from data.text.tokenisation import WORDS as BY_WORDS
from modules.retrieval_models import RetrievalModel, build_model, model_class
from modules.search.joint_space import encoded_contents, farthest, t_sne
from pipeline.reporting.drawings import _grounding, _joint_space, generation_sheet
from pipeline.visualization.grounding import NOTHING, Side, View, grounded, grounding_figure, lit
from pipeline.visualization.joint_space import known_words, plane_figure, word_vectors
from pipeline.visualization.pictures import cut_out
from pipeline.visualization.plots import as_pixels
from tests.modules.cases import ON_REGIONS
from tests.pipeline.tiny import Tiny, relisted

pytestmark = pytest.mark.whole

model_class("san")  # all files of the folder are read
NAMES = ON_REGIONS
D, R = 5, 4
WORDS = {word: n for n, word in enumerate(["a", "red", "bat", "on", "left", "ein", "roter", "schläger", "links"], 1)}
CAPTIONS = [("a red Bat, on the left", "en"), ("links ein roter Schläger", "de")]
BOXES = np.array([[0.0, 0.0, 1.0, 1.0], [0.2, 0.3, 0.6, 0.7], [0.5, 0.5, 0.9, 0.9], [0.1, 0.8, 0.3, 0.9]])
RNG = np.random.default_rng(0)
REGIONS = RNG.normal(size=(6, R, D)).astype(np.float16)


def encode(text: str, language: str) -> list[int]:
    return [WORDS.get(word.strip(",").lower(), 0) for word in text.split()] or [0]


def make(name: str, seed: int = 0) -> RetrievalModel:
    torch.manual_seed(seed)
    common = {"region_dim": D, "vocabulary_size": len(WORDS) + 1, "languages": ["de", "en"], "dim": 8, "word_dim": 6}
    return build_model(name, **common).eval()


def drawn(model: RetrievalModel) -> tuple[list[View], list[Side]]:
    return grounded(model, encode, REGIONS[0], CAPTIONS)


def contents(**other) -> dict:
    given = {
        "images": REGIONS, "regions": REGIONS[:4].reshape(-1, D),
        "captions": {"en": ["a red bat", "the bat"] * 3, "de": ["ein roter schläger", "links"] * 3},
        "words": {"en": ["red", "bat"], "de": ["roter", "schläger"]},
    }  # fmt: skip
    return given | other


def space(name: str, picture: Image.Image | None = None) -> Figure:
    given = contents()
    return plane_figure("$5", "how", encoded_contents(make(name), encode, **given), given["words"], lambda _: picture)


def frames(figure: Figure, panel: int) -> set[tuple[float, ...]]:
    """The boxes that are framed in a panel."""
    patches = [one for one in figure.axes[panel].patches if isinstance(one, Rectangle)]
    return {tuple(np.round([*one.get_xy(), one.get_x() + one.get_width(), one.get_y() + one.get_height()], 3).tolist())
            for one in patches}  # fmt: skip


def texts(figure: Figure) -> list[str]:
    return [one.get_text() for axes in figure.axes for one in (axes.title, *axes.texts)]


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_drawn(name: str) -> None:
    model = make(name)
    heads, sides = drawn(model)
    titles = [[word.title for word in side.words] for side in sides]
    assert titles == [["red", "Bat", "left"], ["links", "roter", "Schläger"]]
    views = [*heads, *(word for side in sides for word in side.words)]
    assert all(view.shares.shape == (R,) and view.shares.min() >= 0 for view in views)
    sums = [float(view.shares.sum()) for view in views]
    assert all(one == pytest.approx(1, abs=1e-5) or one == 0 for one in sums)
    several = [drawn(make(name, seed)) for seed in range(5)]  # by chance, no word of one of them depends on a region
    assert any(word.shares.any() for _, one in several for side in one for word in side.words)
    assert len(heads) == {"san": 1, "dan": 2, "diverse-attention": 3}.get(name, 0)
    figure = grounding_figure("title", None, BOXES, heads, sides)
    assert {"4 regions", "Schläger", *(head.title for head in heads)} <= {*texts(figure)}
    vectors = encoded_contents(model, encode, **contents())
    assert [len(one) for one in vectors.values()] == [6, 16, 6, 6, 2, 2]
    assert all(np.allclose(np.linalg.norm(one, axis=1), 1, atol=1e-5) for one in vectors.values())


def test_the_strongest_regions_are_framed_and_bright_and_a_word_without_one_says_so() -> None:
    shares, none = np.array([0.0, 0.7, 0.3, 0.0]), np.zeros(R)
    sides = [Side("English: “<b> $x$ é”", [View("bat", shares), View("red", none)])]
    figure = grounding_figure("of $5", Image.new("RGB", (60, 40), "white"), BOXES, [View("head 1", shares)], sides)
    for panel in (1, 8):
        assert frames(figure, panel) == {tuple(BOXES[1]), tuple(BOXES[2])}
        assert [text.get_text() for text in figure.axes[panel].texts] == ["70 %", "30 %"]
    assert frames(figure, 9) == set()
    assert [text.get_text() for text in figure.axes[9].texts] == [NOTHING]
    as_pixels(figure)  # no formula
    light = lit(np.full((100, 100, 3), 200, np.uint8), BOXES, shares)[..., 0]
    assert light[55, 55] == 200  # both regions lie over it
    assert light[10, 10] < light[85, 85] < light[35, 25] < 200


def test_pictures_are_the_same_each_time_and_with_the_picture_or_without() -> None:
    picture = Image.new("RGB", (60, 40), "#3080f0")
    with_it = [as_pixels(grounding_figure("title", picture, BOXES, *drawn(make("san")))).tobytes() for _ in range(2)]
    without = as_pixels(grounding_figure("title", None, BOXES, *drawn(make("san")))).tobytes()
    assert with_it[0] == with_it[1] != without
    spaces = [as_pixels(space("san", one)).tobytes() for one in (picture, picture, None)]
    assert spaces[0] == spaces[1] != spaces[2]


def test_the_joint_space_names_each_group_and_writes_the_words() -> None:
    figure = space("scan-t2i-avg")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "images", "regions", "captions, English", "captions, German", "words, English", "words, German",
    ]  # fmt: skip
    assert {"red", "bat", "roter", "schläger"} <= {*texts(figure)}
    few = contents(regions=np.empty((0, D)), words={"en": [], "de": []})
    assert len(encoded_contents(make("san"), encode, **few)) == 3


@pytest.mark.parametrize("shared", [True, False])
def test_word_vectors_are_those_of_the_chosen_words(shared: bool) -> None:
    vocabulary = WordVocabulary.build(["a red bat on the left", "ein roter schläger links"], ["en", "de"], 1, shared)
    words = known_words({"en": ["Red", "bat", "left", "fish"], "de": ["roter", "Schläger"], "fr": ["x"]}, vocabulary)
    assert words == {"en": ["red", "bat", "left"], "de": ["roter", "schläger"]}
    model = build_model("gxn", region_dim=D, vocabulary_size=len(vocabulary), languages=["de", "en"], dim=8, word_dim=6)
    with torch.no_grad():  # the vector of a word is the number of its place alone
        model.word_tables[0].weight.copy_(torch.eye(len(vocabulary))[:, :6])
    turkish = WordVocabulary.build(["ışıklı inek"], ["tr"], 1, shared)
    assert known_words({"tr": ["Işıklı", "İnek", "at"]}, turkish) == {"tr": ["ışıklı", "inek"]}
    figure = plane_figure("of $5", "how", word_vectors(model, vocabulary, words), words)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["words, English", "words, German"]
    assert {"red", "bat", "left", "roter", "schläger"} <= {*texts(figure)}
    before = as_pixels(figure).tobytes()
    with torch.no_grad():
        model.word_tables[0].weight[vocabulary.encode("red", "en")[0]] = torch.tensor([9.0, 0, 0, 0, 0, 9])
    assert as_pixels(plane_figure("of $5", "how", word_vectors(model, vocabulary, words), words)).tobytes() != before


def test_words_are_chosen_by_the_recipe_and_those_without_a_vector_are_told(tiny: Tiny, tmp_path: Path, capsys) -> None:
    made = tiny.without(tmp_path, "draw-*")
    words = "--report.words={en: [a, small, large, the, zebra]}"
    assert made.main("draw", "--vse.only=[human]", words) == 0
    assert "; no word vectors of zebra" in capsys.readouterr().out.replace("\n", " ")
    assert (made.job("draw-san-human-1") / "word-vectors.png").is_file()
    assert made.main("draw", "--vse.only=[human]", "--report.words={xx: [a]}") == 1
    assert "report.words names 'xx', but vse.test has en, de" in capsys.readouterr().err


def test_regions_that_are_shown_lie_apart() -> None:
    points = np.array([[0.0, 0], [0.1, 0], [9, 0], [9, 0.1], [4, 8]])
    assert farthest(points, 3) == [0, 3, 4]
    assert sorted(farthest(points, 9)) == [0, 1, 2, 3, 4]
    assert farthest(points[:0], 3) == []


def test_a_region_is_cut_out_of_its_picture() -> None:
    picture = Image.new("RGB", (100, 50))
    assert cut_out(picture, BOXES[1]).size == (40, 20)
    assert cut_out(picture, np.array([-1.0, 0, 2, 0.5])).size == (100, 25)
    assert cut_out(picture, np.array([0.5, 0.5, 0.5, 0.9])) is None
    assert cut_out(None, BOXES[1]) is None


def test_t_sne_keeps_clusters_together_and_is_the_same_each_time() -> None:
    rng = np.random.default_rng(0)
    clusters = np.concatenate([rng.normal(10 * place, 1, (30, 8)) for place in range(2)]).astype(np.float32)
    places = t_sne(clusters)
    np.testing.assert_array_equal(places, t_sne(clusters))
    middles = places.reshape(2, 30, 2).mean(1)
    assert np.linalg.norm(places.reshape(2, 30, 2) - middles[:, None], axis=2).max() < np.linalg.norm(
        middles[0] - middles[1]
    )


def test_the_command_draws_what_was_trained_into_the_report_and_tensorboard(tiny: Tiny, tmp_path: Path, capsys) -> None:
    made = tiny.without(tmp_path, "vse-san-mmt-fb-1")
    assert made.main("draw", "--vse.only=[mmt-fb]") == 1
    assert "no retrieval model of these settings has been trained; run `bildwort vse`" in capsys.readouterr().err
    assert made.main("draw") == 0
    folder = made.job("draw-san-human-1")
    said = capsys.readouterr().out
    assert "t-SNE, grounding of 3 images" in said
    assert str(folder.relative_to(made.folder)) in said.replace("\n", "")
    assert "1 not drawn: run `bildwort vse` with the same recipe and settings, then again `bildwort draw`" in said
    names = {"grounding-1.png", "grounding-2.png", "grounding-3.png", "joint-space.png", "word-vectors.png"}
    assert {path.name for path in folder.glob("*.png")} == names
    (logs,) = (made.folder / "lightning_logs" / "tiny" / "vse-san-human-1").iterdir()
    assert made.job("vse-san-human-1").name.startswith(logs.name)
    tags = EventAccumulator(str(logs)).Reload().Tags()["images"]
    assert {*tags} == {"grounding/1", "grounding/2", "grounding/3", "joint space/t-SNE", "word vectors/t-SNE"}
    assert made.main("report") == 0
    page = (made.workspace.root / "tiny" / "report" / "report.html").read_text()
    assert page.count("data:image/png;base64,") == len(names)
    assert "<figcaption>vse-san-human-1, grounding-1</figcaption>" in page
    capsys.readouterr()
    assert made.main("draw") == 0
    assert "is up to date" in capsys.readouterr().out


@pytest.mark.parametrize(("regions", "said"), [(1, "one region an image"), (2, "regions without boxes")])
def test_one_region_or_no_boxes_are_told_in_a_line(tiny: Tiny, tmp_path: Path, capsys, regions: int, said: str) -> None:
    made = tiny.without(tmp_path, "draw-*")
    store = RegionStore(made.job("corpus") / "regions")
    vectors, whole = np.array(store.regions[:, :regions]), np.tile([0.0, 0, 1, 1], (regions, 1))
    write_regions(store.folder, store.ids, ((one, whole) for one in vectors))
    for picture in (made.job("corpus") / "pictures").iterdir():
        picture.unlink()
    relisted(made.job("corpus"))
    assert made.main("draw", "--vse.only=[human]") == 0
    assert f"t-SNE; no grounding: {said}" in capsys.readouterr().out
    assert {path.name for path in made.job("draw-san-human-1").glob("*.png")} == {"joint-space.png", "word-vectors.png"}


def test_images_are_those_that_are_described_in_all_languages_or_else_in_the_first(tmp_path: Path) -> None:
    def found(captions: list[tuple[str, str, str]]) -> DescribedImages:
        rows = [Caption(image, f"{image}{language}{n}", language, text, "test")
                for n, (image, language, text) in enumerate(captions)]  # fmt: skip
        write_captions([*rows, Caption("c", "x", "en", "of training", "train")], tmp_path / "captions.parquet")
        return DescribedImages(tmp_path / "captions.parquet", open_images(tmp_path / "regions"), {}, ["en", "de"])

    write_regions(tmp_path / "regions", ["a", "b", "c"], ((REGIONS[0], BOXES) for _ in range(3)))
    both = found([("a", "en", "first"), ("a", "en", "second"), ("a", "de", "ein"), ("b", "en", "b"), ("z", "de", "z")])
    assert both.ids == ["a"]
    assert both.captions["en"]["a"] == "first"
    assert both.texts == {"en": ["first", "second", "b"], "de": ["ein"]}
    apart = found([("a", "en", "a bat"), ("b", "de", "ein")])
    assert apart.ids == ["a"]
    text = WordVocabulary.build(["a bat"], ["en"], 1)
    model = build_model(
        "san", region_dim=D, vocabulary_size=len(text), languages=["de", "en"], dim=8, word_dim=6
    ).eval()
    parts = _grounding(model, text, apart, "a", "t").subfigs
    assert "English: “a bat”" in {one.get_suptitle().strip() for part in parts for one in part.subfigs}
    _joint_space(model, text, apart, apart.frequent_words(25), "t")


def test_words_of_chinese_are_drawn_whole_where_the_model_reads_words(tmp_path: Path) -> None:
    pytest.importorskip("rjieba")
    write_regions(tmp_path / "regions", ["a"], [(REGIONS[0], BOXES)])
    write_captions([Caption("a", "x", "zh", "红色的自行车", "test")], tmp_path / "captions.parquet")
    images = DescribedImages(tmp_path / "captions.parquet", open_images(tmp_path / "regions"), {}, ["zh"])
    text = WordVocabulary.build(images.texts["zh"], ["zh"], 1, by=BY_WORDS)
    assert images.frequent_words(9, BY_WORDS) == {"zh": ["的", "红色", "自行车"]}
    model = build_model("san", region_dim=D, vocabulary_size=len(text), languages=["zh"], dim=8, word_dim=6).eval()
    assert {"红色", "自行车"} <= {*texts(_grounding(model, text, images, "a", "t"))}


def test_a_language_without_captions_of_the_images_has_no_line_of_generated_captions() -> None:
    options = {"dim": 4, "word_dim": 4, "generate": ["i2t"]}
    model = build_model("gxn", region_dim=D, vocabulary_size=12, languages=["de", "en"], **options).eval()
    text = WordVocabulary(["<pad>", "<unk>", *WORDS])
    captions = {"en": {"0": "a red bat", "1": "on the left"}}
    sheets = [
        generation_sheet(model, text, ["0", "1"], np.zeros((2, R, D), np.float32), {}, captions | empty)
        for empty in ({}, {"de": {}}, {"de": {"of another image": "links"}})
    ]
    assert all(sheet.tobytes() == sheets[0].tobytes() for sheet in sheets)
