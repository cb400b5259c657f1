"""Twins: sentences of two pictures, translated with their own picture and with the twin's."""

import shutil
from pathlib import Path

import pytest

from pipeline.translation import evaluation
from pipeline.translation.evaluation import evaluate_translator, translate_rows
from pipeline.translation.parallel_text import parallel_text_of
from pipeline.translation.translating import translate_all
from pipeline.translation.translator_files import load_translator
from tests.pipeline.tiny import Tiny


@pytest.mark.parametrize(("system", "looks"), [("mt", False), ("mmt", True)])
def test_only_what_looks_is_searched_once_more_with_the_twins_pictures(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, looks: bool
) -> None:
    settings, finished = tiny.recipe().mmt, tiny.job(f"{system}-en-de")
    pairs = parallel_text_of({"corpus": tiny.job("corpus")}, "en-de", settings)
    rows, twin_of = pairs.rows("twins", captions=True), {twin["image_id"]: twin["twin_id"] for twin in pairs.twins}
    images = [row["image_id"] for row in rows]
    own, other = (
        [best.score for best, *_ in translate_rows(load_translator(finished), pairs, rows, seen, settings)]
        for seen in (images, [twin_of[image] for image in images])
    )
    assert (own != other) == looks
    searched = []
    monkeypatch.setattr(
        evaluation, "translate_all", lambda *given, **more: searched.append(given) or translate_all(*given, **more)
    )
    again = evaluate_translator(tiny.recipe(), Path(shutil.copytree(finished, tmp_path / "again")), pairs, system)
    assert len(searched) == 3 + looks  # validation, test and twins, then twins with each other's pictures
    assert again.items() <= tiny.metrics(f"{system}-en-de").items()
    assert {"ambiguous", "swapped_ambiguous"} <= again.keys()
