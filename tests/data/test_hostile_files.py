"""Files that are small and would take very long, or that a reader stumbles over."""

import time
from pathlib import Path
from threading import Thread

import pytest
from PIL import Image

from data.captions.tables import read_table
from data.errors import DataError
from data.pictures.images import open_picture, require_picture
from data.text.text_inputs import PretrainedTokens
from tests.modules.text_models import save


def progressive(path: Path, side: int, scans: int) -> Path:
    """A grey picture whose last scan stands in its file several times more."""
    Image.new("L", (side, side), 128).save(path, "JPEG", progressive=True)
    content = path.read_bytes()
    last = content.rindex(b"\xff\xda")
    path.write_bytes(content[:-2] + (content[last:-2] * scans) + content[-2:])
    return path


def test_a_jpeg_of_very_many_scans_is_refused_at_once(tmp_path: Path) -> None:
    assert open_picture(progressive(tmp_path / "usual.jpg", 1000, 4)).size == (1000, 1000)
    path, begun = progressive(tmp_path / "many.jpg", 3000, 2000), time.monotonic()
    with pytest.raises(DataError, match=r"[\d,]+ scans of 3000×3000 pixels, which take too long"):
        require_picture(path)
    assert time.monotonic() - begun < 5


def test_what_stands_behind_a_picture_is_none_of_its_scans(tmp_path: Path) -> None:
    path = progressive(tmp_path / "motion.jpg", 1000, 0)
    path.write_bytes(path.read_bytes() + b"\xff\xda\0\2" * 5000)
    assert open_picture(path).size == (1000, 1000)


def test_a_large_jpeg_of_a_scan_for_each_colour_counts_as_one_that_is_read_whole(tmp_path: Path) -> None:
    Image.new("L", (9600, 9600), 99).save(path := tmp_path / "one.jpg", quality=10)
    require_picture(path)
    content = path.read_bytes()
    last = content.rindex(b"\xff\xda")
    path.write_bytes(content[:-2] + content[last:-2] * 2 + content[-2:])
    with pytest.raises(DataError, match="9600×9600 pixels; at most 89 million are read"):
        require_picture(path)


def test_a_cell_of_very_many_letters_is_read(tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_text(f'picture,caption\n1.jpg,"{"a " * 100_000}"\n')
    assert len(read_table(tmp_path / "long.csv", "a table").rows[-1][1][1]) >= 199_999


def test_threads_share_a_tokenizer(tmp_path: Path) -> None:
    tokens, wrong, text = PretrainedTokens(str(save("bert", tmp_path / "bert")), 10), list[int](), "a red ball " * 20
    whole = tokens.size(text)
    assert whole > 10

    def encode() -> None:
        wrong.extend(count for _ in range(300) if (count := len(tokens.encode(text, "en"))) != 10)

    def size() -> None:
        wrong.extend(count for _ in range(300) if (count := tokens.size(text)) != whole)

    threads = [Thread(target=work) for work in (encode, size) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
