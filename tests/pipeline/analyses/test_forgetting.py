"""What dual encoders forget: ranks on a second set before and after training, their table, keys; bad input."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from data.pictures.regions import write_regions
from modules.metrics.intervals import paired_difference
from modules.metrics.retrieval import RetrievalRanks, retrieval_scores
from pipeline.analyses.forgetting import AFTER, BEFORE
from pipeline.analyses.sets import set_of_folder
from pipeline.engine.job import Job
from pipeline.errors import RecipeError
from pipeline.evaluation.measure import measure
from pipeline.evaluation.network_model import network_model
from pipeline.graph import Graph
from pipeline.retrieval.ranks import read_ranks
from tests.data.layouts import XTD10, write_xtd10
from tests.modules.dual_networks import save
from tests.pipeline.drawn import draw
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

TEXTS = ("a red bat", "a ball and a bat", "the ball", "two red balls", "a box", "a bat in a box")
ROWS = """
vse:
  model: dual-encoder
  pretrained: {network}
  forgetting: {second}
  rows: {{zero-shot: [en/human], head: [en/human], full: [en/human]}}
  row_settings:
    zero-shot: {{epochs: 0}}
    full: {{options: {{image: full}}}}
  only: [zero-shot, head, full]
  options: {{text: head}}
  learning_rate: 0.1
  seeds: [1, 2]
  epochs: 1
  warmup_epochs: 0
  test: [en]
  reranker: {{model: null}}
report: {{resamples: 100}}
"""


class Dual(Tiny):
    """The tiny recipe with dual encoders, and a folder as the second set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.second, self.network = folder / "second", save("siglip", folder / "network", TEXTS[0].split())
        base = shutil.copyfile(self.yaml, folder / "base.yaml")
        self.yaml.write_text(f"base: {base}\n" + ROWS.format(network=self.network, second=self.second))
        lines = []
        for number, text in enumerate(TEXTS):
            draw(self.second / f"{number}.png", number)
            lines += [f"{number}.png\ten\t{text}\n", f"{number}.png\txx\t{text[::-1]}\n"]
        (self.second / "captions.tsv").write_text("".join(lines))

    def jobs(self, *overrides: str) -> dict[tuple[str, int], Job]:
        """Row and seed → its job, of the rows that have one."""
        rows = Graph(self.recipe(*overrides), self.workspace).rows
        return {(row.name, row.seed): row.analyses["forgetting"] for row in rows if "forgetting" in row.analyses}


@pytest.fixture(scope="module")
def dual(tmp_path_factory: pytest.TempPathFactory) -> Dual:
    """Trained, tested and reported."""
    made = Dual(tmp_path_factory.mktemp("dual"))
    for stage in ("vse", "report"):
        assert made.main(stage) == 0
    return made


def _equal(ranks: RetrievalRanks, others: RetrievalRanks) -> bool:
    return all(torch.equal(value, getattr(others, name)) for name, value in vars(ranks).items())


def test_trained_dual_encoders_have_it_and_share_what_the_start_encodes(dual: Dual) -> None:
    jobs = dual.jobs()
    assert jobs.keys() == {(row, seed) for row in ("head", "full") for seed in (1, 2)}
    assert len({job.inputs["start"].key for job in jobs.values()}) == 1
    assert len({job.key for job in jobs.values()}) == 4


def test_before_are_the_figures_of_the_network_as_it_is(dual: Dual) -> None:
    on = set_of_folder(dual.second, None)
    expected = {one.language: one for one in measure(network_model(str(dual.network), ["en", "xx"]), on, 100, 1)}
    for job in dual.jobs().values():
        figures = dual.workspace.manifest(job)["metrics"]["test"]
        assert figures.keys() == {"en", "xx"}
        for language, scores in figures.items():
            ranks = {part: read_ranks(dual.workspace.folder(job) / part, language) for part in (BEFORE, AFTER)}
            ours = expected[language].ranks
            assert ours is not None
            assert _equal(ranks[BEFORE], ours)
            means = {part: retrieval_scores(one)["mean_recall"] for part, one in ranks.items()}
            assert {part: scores[f"mean_recall_{part}"] for part in means} == pytest.approx(means)
            assert scores["mean_recall_after-before"] == pytest.approx(means[AFTER] - means[BEFORE])
            assert scores["forgetting_images"] == 6


def test_after_are_those_of_the_trained_weights(dual: Dual) -> None:
    """The start's network with the weights of a trained one, measured as `evaluate` does."""
    from safetensors.torch import load_file

    on = set_of_folder(dual.second, None)
    for (row, seed), job in dual.jobs().items():
        if seed == 2:
            continue
        model = network_model(str(dual.network), ["en", "xx"])
        weights = load_file(dual.workspace.folder(job.inputs["model"]) / "weights.safetensors")
        missing, unexpected = model.model.load_state_dict(weights, strict=False)
        assert unexpected == []
        assert all("vision" in name for name in missing)
        assert bool(missing) == (row == "head")
        for found in measure(model, on, 100, 1):
            assert found.ranks is not None
            ranks = read_ranks(dual.workspace.folder(job) / AFTER, found.language)
            assert _equal(ranks, found.ranks)


def test_the_report_has_a_table_with_paired_differences(dual: Dual) -> None:
    folder = dual.workspace.root / "tiny" / "report"
    text = (folder / "report.md").read_text()
    table = next(part for part in text.split("**") if part.startswith("\n\n| system | trained on | language"))
    assert f"Forgetting, {dual.second}: mean recall" in text
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.strip().splitlines()[2:]]
    assert [line[1:3] for line in lines] == [[row, code] for row in ("head", "full") for code in ("en", "xx")]
    jobs = dual.jobs()
    for line in lines:
        folders = [dual.workspace.folder(jobs[line[1], seed]) for seed in (1, 2)]
        after, before = ([read_ranks(one / part, line[2]) for one in folders] for part in (AFTER, BEFORE))
        found = paired_difference(after, before, 100)["mean_recall"]
        assert line[5:7] == [f"{found.value:+.1f}", f"{found.low:+.1f} … {found.high:+.1f}"]
        assert line[7].startswith("2 (sd")
    rows = [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]
    kept = [row for row in rows if row["metric"] == "mean_recall_after-before"]
    assert [(row["source"], row["language"], row["split"], row["task"]) for row in kept] == [
        (line[1], line[2], "second set", str(dual.second)) for line in lines
    ]


def test_the_key_is_of_the_files_of_the_second_set(dual: Dual, tmp_path: Path) -> None:
    copy = shutil.copytree(dual.second, tmp_path / "copy")
    key, other = dual.jobs()["head", 1].key, f"--vse.forgetting={copy}"
    assert dual.jobs(other)["head", 1].key == key
    draw(copy / "0.png", 5)
    changed = dual.jobs(other)["head", 1].key
    (copy / "captions.tsv").write_text("0.png\ten\ta bat\n")
    assert len({key, changed, dual.jobs(other)["head", 1].key}) == 3
    of_recipe = dual.jobs(f"--vse.forgetting=recipe:{dual.yaml}")["full", 1]
    assert of_recipe.inputs["second"].key == Graph(dual.recipe(), dual.workspace).corpus.key
    assert dual.jobs("--vse.forgetting=null") == {}
    assert dual.jobs("--vse.row_settings.head={model: san, pretrained: null}").keys() == {("full", 1), ("full", 2)}


def test_another_recipe_s_corpus_is_prepared_first(dual: Dual, tmp_path: Path) -> None:
    second = tmp_path / "second.yaml"
    second.write_text(f"base: {dual.yaml}\ncorpus: {{test: 3, twins: 0}}\nseed: 4\n")
    chosen = [f"--vse.forgetting=recipe:{second}", "--vse.only=[head]", "--vse.seeds=[1]"]
    assert dual.main("vse", *chosen) == 0
    figures = dual.workspace.manifest(dual.jobs(*chosen)["head", 1])["metrics"]["test"]
    sizes = {language: scores["forgetting_images"] for language, scores in figures.items()}
    assert sizes == dict.fromkeys(("cs", "de", "en", "fr"), 3)


def test_bad_input_is_one_line(dual: Dual, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_xtd10(tmp_path)
    ids = [name.removesuffix(".jpg") for name in XTD10]
    write_regions(tmp_path / "stored", ids, [(np.zeros((3, 8)), np.tile([0, 0, 1, 1], (3, 1))) for _ in ids])
    lacking = tmp_path / "lacking.yaml"
    lacking.write_text(f"base: xtd10\ncorpus: {{root: {tmp_path}, pictures: null, regions: stored}}\n")
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "captions.tsv").write_text("0.png\ten\ta bat\n")
    for second, said in (
        ("nowhere", "vse.forgetting: nowhere: no such folder; expected one with pictures and captions, or recipe:NAME"),
        ('"recipe:"', "vse.forgetting: recipe: names no recipe; expected the name of one behind it, or its YAML file"),
        ("recipe:scenez", "vse.forgetting: recipe 'scenez': no file"),
        ("recipe:xtd10", "vse.forgetting: xtd10: no data root; set BILDWORT_DATA=FOLDER"),
        (f"recipe:{lacking}", "vse.forgetting: 4 of 4 images have no picture, first 'COCO_"),
        (tmp_path / "bare", f"vse.forgetting: {tmp_path / 'bare'}: no pictures in it; expected files like"),
    ):
        capsys.readouterr()
        assert dual.main("vse", f"--vse.forgetting={second}") == 1
        err = capsys.readouterr().err
        assert said in err
        assert err.splitlines()[-1].startswith("error: ")
    with pytest.raises(RecipeError, match="nowhere"):
        dual.jobs("--vse.forgetting=nowhere")
