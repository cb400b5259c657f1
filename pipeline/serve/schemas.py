"""The forms of the service's answers, for its page of documentation."""

from pydantic import BaseModel


class Hit(BaseModel):
    """A picture or a caption; `path` is of a picture that is at hand."""

    name: str
    score: float
    path: str | None = None


class Found(BaseModel):
    """Pictures, the nearest first.

    `language` is that of the query, None where it cannot be told; `read_as` the one that the model reads it in; `words`
    how many it has, `unknown` those that the model does not know; `higher` the share of random queries that reach a
    higher score, None where that is not known; `notes` what a person should know of the pictures.
    """

    query: str
    language: str | None
    read_as: str
    words: int
    unknown: list[str]
    higher: float | None
    notes: list[str]
    hits: list[Hit]


class Captions(BaseModel):
    """Captions in the gallery, of one language, that are similar to what a picture shows, the nearest first.

    `captions` are those of the picture itself: none here, as they are known of a picture of the gallery alone.
    `higher` is the share of the gallery's pictures that are nearer to another of them than this picture is to any.
    """

    picture: str
    language: str
    higher: float | None
    notes: list[str]
    captions: list[str]
    hits: list[Hit]


class Vectors(BaseModel):
    """Vectors of H numbers, one for each sentence or picture, and the name and fingerprint of the model.

    `notes` is what a person should know of them: sentences with unknown words, or longer than what is read of them.
    """

    model: str
    vectors: list[list[float]]
    notes: list[str]


class Translation(BaseModel):
    """A sentence, its translation, and its words that the translator does not know."""

    sentence: str
    system: str
    direction: str
    translation: str
    unknown: list[str]
    notes: list[str]


class Health(BaseModel):
    """What is served: the model, its languages and translators, the number of pictures, the languages of captions."""

    status: str
    model: str
    languages: list[str]
    pictures: int
    captions: list[str]
    translators: list[str]


class Problem(BaseModel):
    """What is wrong with a request, in one line."""

    detail: str
