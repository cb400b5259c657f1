"""Faults of text, one a function: it spoils a copy and returns what must be said of it, file and line among it."""

import gzip

from tests.data.spoiling import Faults

fault = Faults()

# Files of text


@fault
def file_missing(data):
    data.raw("train", "en", 3).unlink()
    return "error", data.raw("train", "en", 3), "no such file"


@fault
def not_gzip(data):
    return "error", data.write(data.raw("val", "de", 1), b"plain text\n"), "not a whole gzip file"


@fault
def gzip_cut_short(data):
    path = data.raw("train", "de", 5)
    return "error", data.write(path, path.read_bytes()[:-20]), "not a whole gzip file"


@fault
def gzip_damaged(data):
    raw = bytearray(data.raw("test", "en", 1).read_bytes())
    raw[-6] ^= 1  # of the check sum
    return "error", data.write(data.raw("test", "en", 1), bytes(raw)), "not a whole gzip file"


@fault
def not_utf8(data):
    path = data.raw("train", "de", 1)
    lines = [line.encode() for line in data.lines(path)]
    lines[2] = "Männer".encode("latin-1")
    data.write(path, gzip.compress(b"\n".join(lines) + b"\n", 1))
    return "error", f"{path}:3", "not UTF-8"


@fault
def one_line_less(data):
    path = data.raw("train", "en", 4)
    count = len(data.lines(path))
    return "error", data.write(path, data.lines(path)[1:]), f"{count - 1} lines for {count} images"


@fault
def one_line_more(data):
    path = data.raw("test", "de", None)
    count = len(data.lines(path))
    return "error", data.write(path, ["One more.", *data.lines(path)]), f"{count + 1} lines for {count} images"


@fault
def empty_file(data):
    return "error", data.write(data.raw("val", "en", 2), []), "0 lines"


@fault
def language_the_data_lacks(data):
    data.changed = {"languages": ["en", "ja"], "parallel": None}
    return "error", "'ja'", "it has en, de"


# Sentences


@fault
def empty_caption(data):
    return "warning", data.say(data.image("train"), "  "), "a sentence is empty"


@fault
def empty_translation(data):
    return "warning", data.say(data.image("train", 1), "", "de", None), "a sentence is empty"


@fault
def control_character(data):
    return "warning", data.say(data.image("val"), "a dog \x1b[31m in red"), "control characters"


@fault
def nul_bytes(data):
    return (
        "warning",
        data.say(data.image("train"), "a dog \0\0\0 runs away", "de", None),
        "pairs with control characters",
    )


@fault
def line_separator(data):
    return "warning", data.say(data.image("test"), "a dog runs\u2028a cat sleeps"), "line breaks"


@fault
def lost_characters(data):
    return "warning", data.say(data.image("train"), "M\ufffdnner stehen herum", "de", 5), "U+FFFD"


@fault
def five_thousand_words(data):
    return "warning", data.say(data.image("train"), " ".join(map(str, range(5000)))), "more than 100 words"


@fault
def long_translation(data):
    return "warning", data.say(data.image("train"), "Wort " * 500, "de", None), "pairs of more than 100 words"


@fault
def one_word(data):
    return "warning", data.say(data.image("test", 1), "Dog."), "fewer than 3 words"


@fault
def sentence_in_train_and_test(data):
    train = data.say(data.image("train"), "A zebra rides a green tricycle.")
    test = data.say(data.image("test"), "a zebra rides a green tricycle", number=4)
    return "warning", "sentences in two splits", train, test


@fault
def sentence_on_two_images(data):
    first = data.say(data.image("test", 0), "A zebra rides a green tricycle.")
    second = data.say(data.image("test", 1), "A zebra rides a green tricycle", number=3)
    return "warning", "sentences on several images", first, second


@fault
def file_copied_over_another(data):
    data.write(data.raw("train", "en", 1), data.raw("train", "en", 2).read_bytes())
    path, line = data.caption(data.image("train", 1))
    return "warning", "sentences twice on one image", f"{path}:{line}", f"{data.raw('train', 'en', 1)}:{line}"


@fault
def english_and_german_files_swapped(data):
    first, second = data.raw("train", "en", 1), data.raw("train", "de", 1)
    contents = first.read_bytes(), second.read_bytes()
    data.write(first, contents[1])
    data.write(second, contents[0])
    return "error", "train, en", "sentences that seem to be in 'de'", first


@fault
def translations_swapped(data):
    first, second = data.raw("train", "en", None), data.raw("train", "de", None)
    contents = first.read_bytes(), second.read_bytes()
    data.write(first, contents[1])
    data.write(second, contents[0])
    return "error", "task1, de", "sentences that seem to be in 'en'", second
