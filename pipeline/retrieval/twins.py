"""Scenes' twin pictures: how often a caption scores its own picture above the one that differs in one sense."""

from pathlib import Path

import numpy as np
import torch
from datasets import Dataset as Table

from data.caption_batches import CaptionBatches
from data.captions import HUMAN
from data.regions import RegionStore
from data.text import TextInput
from modules.retrieval import Retrieval


def twin_scores(
    module: Retrieval, captions: Table, store: RegionStore, text: TextInput, twins: list[dict[str, str]], folder: Path
) -> dict[str, dict[str, float]]:
    """How often a caption scores its own picture above the twin picture that differs in one sense only, in percent.

    Ties count against the model. The outcome of each caption is left in `twins-<language>.npy`.
    """
    other = {row["image_id"]: row["twin_id"] for row in twins}
    found = {}
    for language in module.test_languages if twins else ():
        rows = [
            row for row in captions.to_list()
            if row["split"] == "twins" and row["language"] == language and row["source"] == HUMAN
        ]  # fmt: skip
        batches = CaptionBatches(Table.from_list(rows), store, text.encode, module.model.languages, [])
        ids = [row["image_id"] for row in rows]
        module.eval()
        with torch.no_grad():
            images, encoded_captions = module.encode(batches[[(number,) for number in range(len(rows))]])
            scores = module.model.similarity(images, encoded_captions)
        place = {int(row): number for number, row in enumerate(np.unique(store.rows(ids)))}
        own, twin = ([place[int(row)] for row in store.rows(names)] for names in (ids, [other[name] for name in ids]))
        columns = torch.arange(len(rows))
        right = scores[own, columns] > scores[twin, columns]
        np.save(folder / f"twins-{language}.npy", right.numpy())
        found[language] = {"own_above_twin": 100 * right.float().mean().item()}
    return found
