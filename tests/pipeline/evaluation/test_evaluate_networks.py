"""`evaluate` on dual encoders of transformers as they are (`hub:NAME`), and `--against`; bad input."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers as hf
from torch.nn import functional as F

from data.pictures.images import open_picture
from data.pictures.regions import write_regions
from modules.metrics.intervals import paired_difference
from modules.metrics.retrieval import RetrievalRanks, retrieval_ranks, retrieval_scores
from pipeline.cli import main
from pipeline.evaluation.network_model import network_model
from tests.data.layouts import XTD10, write_xtd10
from tests.modules.dual_networks import save
from tests.pipeline.drawn import draw
from tests.pipeline.tiny import at

TEXTS = {
    "en": ("a red dog", "a house", "the dog runs", "red house", "a dog", "a house runs"),
    "de": ("ein roter hund", "der hund läuft", "hund", "ein hund läuft", "roter hund", "ein roter hund läuft"),
}


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`clip`, `other` and `siglip`."""
    made = tmp_path_factory.mktemp("networks")
    for name, kind, seed in (("clip", "clip", 0), ("other", "clip", 1), ("siglip", "siglip", 0)):
        save(kind, made / name, seed=seed)
    return made


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Six pictures with captions in two languages."""
    folder = tmp_path / "theirs"
    lines = []
    for number in range(6):
        draw(folder / f"{number}.png", number)
        lines += [f"{number}.png\t{language}\t{texts[number]}" for language, texts in TEXTS.items()]
    (folder / "captions.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def _command(folder: Path, capsys: pytest.CaptureFixture, *arguments: str | Path) -> tuple[int, str, str]:
    """Status, output and errors of the command, in a folder."""
    capsys.readouterr()
    with at(folder):
        status = main(["evaluate", *map(str, arguments)])
    said = capsys.readouterr()
    return status, said.out, said.err


def _ranks(network: Path, pictures: Path, language: str) -> RetrievalRanks:
    """By transformers alone, one picture and one caption at a time."""
    model = hf.AutoModel.from_pretrained(network).eval()
    reader = hf.AutoImageProcessor.from_pretrained(network, backend="pil")
    tokenizer = hf.AutoTokenizer.from_pretrained(network)
    images, texts = [], []
    with torch.no_grad():
        for number, text in enumerate(TEXTS[language]):
            picture = open_picture(pictures / f"{number}.png")
            images.append(model.get_image_features(**reader(picture, return_tensors="pt")).pooler_output[0])
            long = {"padding": "max_length", "max_length": 12} if network.name == "siglip" else {}
            tokens = tokenizer(text, return_tensors="pt", **long)["input_ids"]
            texts.append(model.get_text_features(input_ids=tokens).pooler_output[0])
    scores = F.normalize(torch.stack(images), dim=1) @ F.normalize(torch.stack(texts), dim=1).T
    return retrieval_ranks(scores, torch.arange(len(texts)))


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_a_network_has_the_figures_that_transformers_gives(networks: Path, theirs: Path, kind: str, capsys) -> None:
    status, out, err = _command(theirs.parent, capsys, f"hub:{networks / kind}", "--on", theirs, "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert (status, err, [one["language"] for one in found]) == (0, "", ["de", "en"])
    for one in found:
        expected = retrieval_scores(_ranks(networks / kind, theirs, one["language"]))
        assert {name: values["value"] for name, values in one["figures"].items()} == pytest.approx(expected, abs=1e-3)
        assert (one["model"], one["split"], one["seen"]) == (f"hub:{networks / kind}", "all", None)
        assert (one["gallery"], one["captions"]) == (6, 6)


def test_its_fingerprint_is_of_its_files(networks: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(networks / "clip", tmp_path / "copy")
    first, second = (network_model(str(folder), ["en"]).fingerprint for folder in (networks / "clip", copy))
    assert first == second
    assert network_model(str(networks / "other"), ["en"]).fingerprint != first


def test_it_reads_a_test_set_in_all_its_languages(networks: Path, tmp_path: Path, capsys) -> None:
    write_xtd10(tmp_path)
    settings = (f"--corpus.root={tmp_path}", "--corpus.pictures=coco", "--report.resamples=100")
    status, out, _ = _command(tmp_path, capsys, f"hub:{networks / 'clip'}", "--on", "recipe:xtd10", *settings)
    lines = [line.split() for line in out.splitlines() if "t→i" in line]
    assert (status, [line[0] for line in lines]) == (0, ["de", "en", "es", "ja", "zh"])
    assert out.count("not known") == 15


def test_two_models_are_compared_on_the_same_images(networks: Path, theirs: Path, capsys) -> None:
    names = [f"hub:{networks / name}" for name in ("clip", "other")]
    command = (names[0], "--against", names[1], "--on", theirs)
    status, out, err = _command(theirs.parent, capsys, *command, "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert [(one["model"], one["language"]) for one in lines[:4]] == [(n, code) for n in names for code in ("de", "en")]
    for one in lines[4:]:
        ours, base = (_ranks(networks / name, theirs, one["language"]) for name in ("clip", "other"))
        assert (one["model"], one["against"]) == tuple(names)
        for name, expected in paired_difference(ours, base).items():
            assert one["differences"][name] == pytest.approx(expected._asdict(), abs=1e-3)
    assert {one["model"]: one["fingerprint"] for one in lines[:4]}[names[1]] == lines[4]["against_fingerprint"]
    _, out, _ = _command(theirs.parent, capsys, *command)
    figures, differences = out.split("Paired differences")
    assert [name in figures for name in ("model", "t→i", "median", names[1])] == [True] * 4
    shown = lines[4]["differences"]["mean_recall"]
    assert next(line for line in differences.splitlines() if line.split()[:1] == ["de"]).split()[1] == (
        f"{shown['value']:+.2f}"
    )


def test_bad_input_is_one_line(networks: Path, theirs: Path, tmp_path: Path, capsys) -> None:
    hf.ViTConfig().save_pretrained(tmp_path / "vit")
    half = shutil.copytree(networks / "clip", tmp_path / "half")
    (half / "model.safetensors").unlink()
    wordless = shutil.copytree(networks / "clip", tmp_path / "wordless")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (wordless / name).unlink()
    clip = f"hub:{networks / 'clip'}"
    for model, arguments, said in (
        (f"hub:{theirs}", (), f"hub:{theirs}: no dual encoder of transformers there ("),
        (f"hub:{tmp_path / 'vit'}", (), "vit: a network 'vit' without text tower; expected a dual encoder (SigLIP 2"),
        (f"hub:{half}", (), "half: no dual encoder of transformers there ("),
        (f"hub:{wordless}", (), "wordless: no "),
        ("hub:nobody/nothing", (), "hub:nobody/nothing: no dual encoder of transformers there ("),
        ("hub:nobody/nothing", (), "without internet, copy it into a folder (`hf download NAME --local-dir FOLDER`)"),
        ("hub:", (), "hub: names no network; expected a folder or a name on the hub behind it, hub:google/siglip2"),
        (clip, ("--against", "hub:nowhere"), "hub:nowhere: no dual encoder of transformers there ("),
        (clip, ("--against", clip, "--on", "mteb:XM3600T2IRetrieval"), "with --on mteb:XM3600T2IRetrieval: mteb keeps"),
    ):  # fmt: skip
        on = () if "--on" in arguments else ("--on", theirs)
        status, out, err = _command(tmp_path, capsys, model, *on, *arguments)
        assert (status, out) == (1, "")
        assert said in err
        assert "vse.pretrained" not in err
        assert err.count("\n") == 1


def test_a_set_without_pictures_is_one_line(networks: Path, tmp_path: Path, capsys) -> None:
    write_xtd10(tmp_path)
    ids = [name.removesuffix(".jpg") for name in XTD10]
    boxes = np.tile([0, 0, 1, 1], (3, 1))
    write_regions(tmp_path / "stored", ids, [(np.zeros((3, 8)), boxes) for _ in ids])
    settings = (f"--corpus.root={tmp_path}", "--corpus.pictures=null", "--corpus.regions=stored")
    name = f"hub:{networks / 'clip'}"
    status, out, err = _command(tmp_path, capsys, name, "--on", "recipe:xtd10", *settings)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "XTD10: 4 of 4 images have no picture here, first 'COCO_" in err
    assert f"the model {name} reads pictures; put them where the recipe expects them" in err
