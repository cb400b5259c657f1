"""Faults of lists, region stores, parallel text and pictures, one a function, as in `tests.data.faults_text`."""

import numpy as np

from tests.data.official import pack
from tests.data.spoiling import Faults

fault = Faults()

# Lists of images


@fault
def image_listed_twice(data):
    return "error", data.edit(data.lists / "train.txt", 3, data.image("train")), "stands twice"


@fault
def image_in_two_splits(data):
    return "error", data.edit(data.lists / "test.txt", 2, data.image("train")), "stands twice", data.lists / "train.txt"


@fault
def empty_line_in_a_list(data):
    return "error", data.edit(data.lists / "val.txt", 2, ""), "empty line"


@fault
def unknown_image_in_a_list(data):
    return "error", data.edit(data.lists / "train.txt", 2, "none.jpg"), "'none.jpg' is in no official list"


@fault
def image_of_other_case_in_a_list(data):
    name = data.image("val", 1).upper()
    return "error", data.edit(data.lists / "val.txt", 2, name), f"'{name}' is in no official list"


@fault
def list_missing(data):
    (data.lists / "val.txt").unlink()
    return "error", data.lists / "val.txt", "no such file"


@fault
def list_empty(data):
    return "error", data.write(data.lists / "test.txt", b""), "no lines"


@fault
def official_image_listed_twice(data):
    path = data.list_of("train")
    return "error", data.edit(path, 2, data.lines(path)[0]), "stands twice"


@fault
def training_pair_of_a_test_image(data):
    """The image of a test sentence has another name in task 1, so that its translation would be trained on."""
    image = next(name for name in data.lines(data.lists / "test.txt") if data.where(name)[0] == "train")
    return "error", data.edit(data.list_of("train", "task1"), data.where(image, "task1")[1], "other.jpg"), repr(image)


@fault
def lists_of_the_tasks_in_another_order(data):
    path = data.list_of("train", "task1")
    first, second, *others = data.lines(path)
    return "error", f"{data.write(path, [second, first, *others])}:1", repr(first), repr(second)


# Region stores


@fault
def regions_missing(data):
    (data.features / "regions.npy").unlink()
    return "error", data.features / "regions.npy", "no such file"


@fault
def regions_not_a_number(data):
    path = data.change("regions", lambda array: array[3, 1].fill(np.nan))
    return "error", path, "NaN or infinity in row 3", data.lines(data.ids)[3]


@fault
def boxes_infinite(data):
    path = data.change("boxes", lambda array: array[4, 0].fill(np.inf))
    return "error", path, "NaN or infinity in row 4", data.lines(data.ids)[4]


@fault
def regions_of_wrong_type(data):
    path = data.write(data.features / "regions.npy", data.array("regions").astype(np.float32))
    return "error", path, "type float32, expected float16"


@fault
def boxes_of_wrong_width(data):
    path = data.write(data.features / "boxes.npy", data.array("boxes")[:, :-1])
    return "error", path, "shape", "as in regions.npy"


@fault
def a_row_too_few(data):
    for name in ("regions", "boxes"):
        data.write(data.features / f"{name}.npy", data.array(name)[:-1])
    count = len(data.lines(data.ids))
    return "error", data.ids, f"{count} ids for {count - 1} rows"


@fault
def regions_cut_short(data):
    path = data.features / "regions.npy"
    return "error", data.write(path, path.read_bytes()[:-7]), "cut short"


@fault
def regions_a_pickle(data):
    path = data.write(data.features / "regions.npy", np.array([{"a": 1}], dtype=object))
    return "error", path, "not a readable .npy file"


@fault
def regions_all_zero(data):
    path = data.change("regions", lambda array: array[2].fill(0))
    return "error", path, "all zero", f"{data.lines(data.ids)[2]} (row 2)"


@fault
def boxes_in_pixels(data):
    path = data.change("boxes", lambda array: np.multiply(array, 176, out=array))
    return "warning", path, "outside 0…1", f"{data.lines(data.ids)[0]} (row 0)"


@fault
def boxes_turned_round(data):
    path = data.change("boxes", lambda array: array[1, 0].__setitem__(slice(None), [0.9, 0.1, 0.2, 0.3]))
    return "warning", path, "turned round", f"{data.lines(data.ids)[1]} (row 1)"


@fault
def id_twice(data):
    return "error", data.edit(data.ids, 5, data.lines(data.ids)[0]), "line 1 already"


@fault
def id_empty(data):
    return "error", data.edit(data.ids, 5, " "), "empty line"


@fault
def ids_not_utf8(data):
    raw = data.ids.read_bytes().split(b"\n")
    data.write(data.ids, b"\n".join([raw[0], b"\xff", *raw[2:]]))
    return "error", f"{data.ids}:2", "not UTF-8"


@fault
def id_of_another_image(data):
    """One fault, two sides: an image has no regions, and regions have no captions."""
    image = data.lines(data.ids)[1]
    data.edit(data.ids, 2, "other.jpg")
    return "error", data.ids, "images without regions", image


@fault
def id_of_other_case(data):
    image = data.lines(data.ids)[1]
    data.edit(data.ids, 2, image.upper())
    return "error", data.ids, "images without regions", f"{image} (line 2 has {image.upper()})"


@fault
def regions_without_captions(data):
    lines = data.lines(data.ids)
    for name in ("regions", "boxes"):
        array = data.array(name)
        data.write(data.features / f"{name}.npy", np.concatenate([array, array[:1]]))
    data.write(data.ids, [*lines, "other.jpg"])
    return "warning", data.ids, "images without captions", f"other.jpg (line {len(lines) + 1})"


# Parallel text and pictures


@fault
def parallel_text_missing(data):
    data.parallel.unlink()
    return "error", data.parallel, "no such file"


@fault
def parallel_line_without_tab(data):
    return "error", data.edit(data.parallel, 7, "Run! Lauf!"), "no TAB"


@fault
def parallel_side_empty(data):
    return "warning", data.edit(data.parallel, 8, "Run!\t"), "a sentence is empty"


@fault
def parallel_columns_swapped(data):
    swapped = ["\t".join(reversed(line.split("\t")[:2])) for line in data.lines(data.parallel)]
    return "error", data.write(data.parallel, swapped), "tatoeba, de", "sentences that seem to be in 'en'"


@fault
def parallel_text_holds_a_test_caption(data):
    path, line = data.caption(data.image("test"))
    pair = data.edit(data.parallel, 9, f"{data.lines(path)[line - 1]}\tEin Satz aus dem Test.")
    return "warning", "sentences in two splits", pair, f"{path}:{line}"


@fault
def picture_missing(data):
    image = data.image("train", 2)
    (data.own_pictures() / image).unlink()
    return "warning", data.pictures, "images without a picture", image


@fault
def picture_a_web_page(data):
    path = data.write(data.own_pictures() / data.image("test", 1), b"<html>404: not found</html>")
    return "warning", data.pictures, "pictures that cannot be read", path


@fault
def picture_empty(data):
    return "warning", "pictures that cannot be read", data.write(data.own_pictures() / data.image("val"), b"")


@fault
def pictures_missing(data):
    data.pictures.unlink()
    return "error", data.pictures, "no such folder"


@fault
def pictures_of_something_else(data):
    data.pictures.unlink()
    pack(data.pictures / "other.jpg", [])
    return "error", data.pictures, "none of the"
