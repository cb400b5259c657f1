"""JSON: captions of Karpathy's and of COCO's form, and captions in another language, as YJ Captions has them."""

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from data.corpora.coco.karpathy import KarpathySettings, read, sources
from tests.data.layouts import sentence
from tests.fuzz.case import Case, Reader
from tests.fuzz.mutations import as_json, content_of, put_special, spoiled_bytes, spoiled_tree, text, ways_out
from tests.fuzz.tables import COUNT, check_corpus, init_and_doctor, packed_zeros, write_pictures
from tests.pipeline.init.own_pictures import write_coco, write_karpathy_form

JAPANESE = Path("more") / "other"  # deeper than `init` looks
_LISTS = {"val": "val.txt", "test": "test.txt"}


class Trees(Reader):
    """A folder of pictures, and one JSON of their captions."""

    name = "json"

    def __init__(self) -> None:
        self._settings = KarpathySettings()

    def prepare(self, base: Path, light: bool) -> None:
        captions = {name: sentence(name, 1) for name in write_pictures(base / "pictures")}
        write_coco(base / "coco.json", captions)
        write_karpathy_form(base / "karpathy.json", captions)
        content = json.loads((base / "karpathy.json").read_text())
        for number, image in enumerate(content["images"]):
            image |= {"cocoid": 1007 + number, "filepath": "pictures"}
        (base / "karpathy.json").write_text(json.dumps(content))
        content = json.loads((base / "coco.json").read_text())
        for one in [*content["images"], *content["annotations"]]:
            one["id" if "file_name" in one else "image_id"] += 1000
        (base / "coco.json").write_text(json.dumps(content))
        other = base / JAPANESE
        other.mkdir(parents=True)
        said = [
            {"id": k, "image_id": 1007 + k, "caption": f"犬{k}が公園にいる", "tokenized_caption": "犬"}
            for k in range(COUNT)
        ]
        (other / "ja.json").write_text(json.dumps({"annotations": said, "images": []}, ensure_ascii=False), "utf-8")
        (other / "ja.txt").write_text("".join(f"{k}.png#0\t犬{k}が公園にいる\n" for k in range(COUNT)), "utf-8")
        (other / "val.txt").write_text("1.png\n2.png\n")
        (other / "test.txt").write_text("3.png\n")
        (other / "de.tsv").write_text("".join(f"dog {k} runs\tHund {k} rennt\n" for k in range(COUNT)))

    def give(self, case: Case, base: Path) -> None:
        super().give(case, base)
        form = "coco" if case.rng.random() < 0.5 else "karpathy"
        (case.given / {"coco": "karpathy.json", "karpathy": "coco.json"}[form]).unlink()
        drawn = {} if form == "karpathy" else {"drawn": 2}
        if form == "coco" and case.rng.random() < 0.3:
            drawn = {"splits": {split: str(JAPANESE / name) for split, name in _LISTS.items()}}
        ending = case.rng.choice([".json", ".json", ".txt"])
        self._settings = KarpathySettings(
            captions=f"{form}.json", languages=["en", "ja"], translated={"ja": str(JAPANESE / f"ja{ending}")},
            pictures=case.rng.choice([".", "pictures"]), **drawn,
        )  # fmt: skip

    def spoil(self, case: Case, base: Path) -> str:
        self.give(case, base)
        rng, said = case.rng, []
        main = case.given / self._settings.captions
        for _ in range(rng.choice([1, 1, 1, 2])):
            chance = rng.random()
            if chance < 0.6:
                said.append(self._spoil_json(case, main))
            elif chance < 0.8:
                said.append(self._spoil_json(case, case.given / JAPANESE / "ja.json"))
                self._settings = replace(self._settings, translated={"ja": str(JAPANESE / "ja.json")})
            elif chance < 0.9:
                said.append(_spoil_lines(case, rng.choice(["ja.txt", "val.txt", "test.txt"])))
            elif chance < 0.95:
                said.append(self._special(case, main))
            else:
                said.append(self._other_settings(case))
        return "; ".join(said)

    def read(self, case: Case) -> None:
        check_corpus(case, case.call(lambda: read(self._settings, case.given, case.work)))
        case.call(lambda: sources(self._settings, case.given))
        named = case.rng.random() < 0.3
        init_and_doctor(case, *(["--captions", str(case.given / self._settings.captions)] if named else []))

    def _spoil_json(self, case: Case, path: Path) -> str:
        rng = case.rng
        if (held := content_of(path)) is None:
            return "twice"
        if rng.random() < 0.12:
            raw, said = spoiled_bytes(rng, held)
        else:
            try:
                tree = json.loads(held)
            except (ValueError, RecursionError):
                return "twice"
            out = [
                *ways_out(case.given / "pictures", case.outside, ".png"),
                *ways_out(case.given, case.outside, ".json"),
            ]
            new, said = _led_out(case, tree) if rng.random() < 0.08 else spoiled_tree(rng, tree, out)
            raw, how = as_json(rng, new)
            said = f"{said} {how}"
        path.write_bytes(raw)
        return f"{path.name}: {said}"

    def _special(self, case: Case, path: Path) -> str:
        """What is no plain file, or is packed."""
        hows = ["folder", "pipe", "link to itself", "missing", "packed", "cut", "zeros"]
        how = "missing" if case.rng.light else case.rng.choices(hows, [3] * 6 + [1])[0]
        raw = content_of(path) or b""
        if path.is_dir():
            return "twice"
        path.unlink(missing_ok=True)
        if how in ("packed", "cut", "zeros"):
            packed = {"packed": gzip.compress(raw), "cut": gzip.compress(raw)[:-9], "zeros": packed_zeros()}[how]
            path.with_name(f"{path.name}.gz").write_bytes(packed)
            self._settings = replace(self._settings, captions=f"{path.name}.gz")
        else:  # a file that a recipe names may be a link out; one that `init` finds may not
            put_special(path, how)
        return f"{path.name}: {how}"

    def _other_settings(self, case: Case) -> str:
        rng = case.rng
        changes: list[dict[str, Any]] = [
            {"drawn": rng.choice([0, 1, 5, 6, 7, -1, 10**9, 10**400]), "splits": {}}, {"language": rng.choice(["",
            "ja", "xx"])}, {"languages": rng.choice([[], ["ja"], ["en", "en"], ["xx"], ["ja", "en"]])},
            {"restval": False}, {"keep_suffix": True}, {"drawn_seed": rng.choice([0, -1, 10**400])},
            {"pictures": None}, {"pictures": rng.choice(["away", "", "karpathy.json"])},
            {"parallel": {"ja": str(JAPANESE / "de.tsv")}}, {"parallel": {"ja": str(JAPANESE / "ja.json")}},
            {"translated": {"ja": rng.choice(["away", "", "pictures"])}},
            {"splits": {"val": str(JAPANESE / "val.txt")}, "drawn": 0}, {"regions": rng.choice(["pictures", "away"])},
        ]  # fmt: skip
        change = rng.choice(changes)
        self._settings = replace(self._settings, **change)
        return f"settings {change}"[:100]


def _led_out(case: Case, tree: Any) -> tuple[Any, str]:
    """An image of the JSON is named so that its file lies outside."""
    folder = case.given / "pictures"
    above = os.path.relpath(case.outside, case.rng.choice([case.given, folder]))
    images = tree.get("images") if isinstance(tree, dict) else None
    image = case.rng.choice(images) if images and isinstance(images, list) else {}
    if not isinstance(image, dict):
        return tree, "nothing"
    key = "file_name" if "file_name" in image else "filename"
    way = case.rng.choice(ways_out(folder, case.outside, ".png")[:7])
    image |= case.rng.choice(
        [{key: way}, {"filepath": above, key: "secret.png"}, {"filepath": str(case.outside), key: "secret.png"}]
    )
    return tree, f"an image is {image.get('filepath')} {image.get(key)}"


def _spoil_lines(case: Case, name: str) -> str:
    path, rng = case.given / JAPANESE / name, case.rng
    lines = (content_of(path) or b"").decode("utf-8", "replace").split("\n")
    for _ in range(rng.choice([1, 1, 3])):
        place = rng.randrange(len(lines))
        lines[place] = rng.choice(
            [text(rng), lines[place] + text(rng), lines[0], "7", "images", f"{lines[place]}\t{text(rng)}"]
        )
    raw = "\n".join(lines).encode("utf-8", "surrogatepass")
    path.write_bytes(spoiled_bytes(rng, raw)[0] if rng.random() < 0.3 else raw)
    return f"{name}: {lines[place][:40]!r}"
