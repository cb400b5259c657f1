"""The service: its endpoints, limits, and what it says of a wrong request."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Form, Request, Response, UploadFile
from fastapi import Query as Parameter
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse
from fastapi_offline import FastAPIOffline
from starlette.datastructures import Headers, MutableHeaders
from starlette.datastructures import UploadFile as Uploaded
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import RequestBodyLimitMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from data.errors import DataError
from modules.errors import ModelError
from pipeline.engine.machine_errors import line_of
from pipeline.errors import RecipeError, in_our_words
from pipeline.gallery.hits import GalleryError, Query
from pipeline.serve.answers import Answers, Sentences, Translating, Upload
from pipeline.serve.batches import Batches, BusyError
from pipeline.serve.schemas import Captions, Found, Health, Problem, Translation, Vectors

LARGEST = 20 * 2**20
"""Bytes of a request's body."""
LONGEST, MOST_SENTENCES, MOST_RESULTS = 1000, 64, 1000  # characters of a sentence; sentences, results of a request
_QUERIES, _PICTURES, _TRANSLATIONS = 64, 16, 16  # requests of a batch
_WAITING = 32  # pictures in memory until there is time for them
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    422: {"model": Problem, "description": "The request is wrong."},
    503: {"model": Problem, "description": "The gallery cannot be read."},
}
_TOO_LARGE: dict[int | str, dict[str, Any]] = {413: {"model": Problem, "description": "The body is too large."}}
_FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
_UNOBSERVED: Any = dict.fromkeys(("tracing", "metrics", "logs"), False)

Sentence = Annotated[str, Parameter(max_length=LONGEST, description="words, in a language that the model reads")]
Top = Annotated[int, Parameter(ge=1, le=MOST_RESULTS, description="how many, the best first")]
Direction = Annotated[str, Parameter(description="source-target, as `en-de`")]
System = Annotated[str, Parameter(description="a translator that `/health` names")]
Language = Annotated[str | None, Parameter(description="detected if none is given")]


def create_app(answers: Answers, names: Sequence[str], largest: int = LARGEST) -> FastAPI:
    """The service as an ASGI application.

    Args:
        names: that it answers to, `names_of`.
        largest: bytes of a request's body; a larger one is refused while it arrives.
    """
    app = FastAPIOffline(  # its page /docs asks no other server
        title="Bildwort", description="Search the pictures of a gallery.", redoc_url=None, telemetry=_UNOBSERVED,
        responses=_PROBLEMS,
    )  # fmt: skip
    hosts = [f"[{name}]" if ":" in name else name for name in names]  # as a browser writes IPv6
    app.add_middleware(RequestBodyLimitMiddleware, max_body_size=largest)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)
    details = {
        "Content Too Large": f"the body is larger than {largest / 2**20:g} MB",
        "Invalid host header": "this service does not answer to this name; start it with --hosts NAME",
    }
    app.add_middleware(_Outermost, names=hosts, details=details)
    _explain_errors(app, details)
    thread = ThreadPoolExecutor(1, "answers")
    _add_words(app, answers, thread)
    _add_pictures(app, answers, thread)
    return app


def _add_words(app: FastAPI, answers: Answers, thread: ThreadPoolExecutor) -> None:
    """The endpoints that take words, and what is served."""
    searches = Batches(answers.search, thread, _QUERIES)
    translations = Batches(answers.translate, thread, _TRANSLATIONS)

    known = [Depends(_require_known)]

    @app.get("/search", response_model=Found, dependencies=known)
    async def search(q: Sentence, top: Top = 10, language: Language = None) -> Response:
        """The pictures nearest to a sentence."""
        return JSONResponse(await searches.ask(Query(q, language, top)))

    @app.get("/translate", response_model=Translation, dependencies=known)
    async def translate(sentence: Sentence, direction: Direction, system: System = "mt") -> Response:
        """A sentence in another language, if the model has translators (`/health` names them)."""
        if not sentence.strip():
            raise RecipeError("translate: the sentence is empty; give a few words")
        return JSONResponse(await translations.ask(Translating(sentence, system, direction)))

    @app.head("/health", include_in_schema=False)
    @app.get("/health", response_model=Health)
    async def health() -> Response:
        """What is served."""
        return JSONResponse(answers.health())


def _add_pictures(app: FastAPI, answers: Answers, thread: ThreadPoolExecutor) -> None:
    """The endpoints that take pictures too."""
    descriptions = Batches(answers.describe, thread, _PICTURES, most_waiting=_WAITING)
    of_sentences = Batches(answers.embed_sentences, thread, _QUERIES)
    of_pictures = Batches(answers.embed_pictures, thread, _PICTURES, most_waiting=_WAITING)

    form = [Depends(_require_form), Depends(_require_known)]

    @app.post("/describe", response_model=list[Captions], responses=_TOO_LARGE, dependencies=form)
    async def describe(picture: UploadFile, top: Top = 5) -> Response:
        """Similar captions in the gallery for a picture, in each language."""
        descriptions.require_room()
        return JSONResponse(await descriptions.ask(Upload(await picture.read(), picture.filename or "picture", top)))

    @app.post("/embed", response_model=Vectors, responses=_TOO_LARGE, dependencies=form)
    async def embed(
        sentences: Annotated[list[str] | None, Form()] = None,
        language: Annotated[str | None, Form(description="of the sentences; detected if none is given")] = None,
        picture: UploadFile | None = None,
    ) -> Response:
        """The vectors of sentences, or of a picture."""
        if (sentences is None) == (picture is None):
            raise RecipeError("embed: give sentences or a picture, one of the two")
        if picture is not None and language is not None:
            raise RecipeError("embed: language is for sentences; leave it out with a picture")
        if picture is not None:
            of_pictures.require_room()
            upload = Upload(await picture.read(), picture.filename or "picture")
            return JSONResponse(await of_pictures.ask(upload))
        return JSONResponse(await of_sentences.ask(Sentences(_checked(sentences or []), language)))


async def _require_form(request: Request) -> None:
    """Refuse a body that is no form, such as JSON, by a RecipeError; no body at all is answered by the endpoint."""
    kind = request.headers.get("Content-Type", "")
    if kind and kind.partition(";")[0].strip().lower() not in _FORMS:
        name = request.url.path.removeprefix("/")
        raise RecipeError(f"{name}: the body is {kind[:100]!r}; expected a form (`curl -F NAME=VALUE`, see /docs)")


async def _require_known(request: Request) -> None:
    """Refuse by a RecipeError a parameter that the endpoint does not take there, or that is given more than once:
    it would be left out, and nobody told."""
    takes, endpoint = request.scope["route"].dependant, request.url.path.removeprefix("/")
    for fields, given, place in ((takes.query_params, request.query_params, "the address"),
                                 (takes.body_params, await request.form(), "the form")):  # fmt: skip
        known = [field.alias for field in fields]
        for name in given:
            if name not in known:
                names = ", ".join(known) or "none"
                raise RecipeError(f"{endpoint}: no parameter {name[:100]!r} in {place}, which takes {names}; see /docs")
            if len(given.getlist(name)) > 1 and name != "sentences":
                raise RecipeError(f"{endpoint}: {name} is given {len(given.getlist(name))} times; give one")


def _checked(sentences: list[str]) -> list[str]:
    """The sentences, if they are as they may be; else a RecipeError."""
    if len(sentences) > MOST_SENTENCES:
        raise RecipeError(f"embed: {len(sentences)} sentences; send at most {MOST_SENTENCES} at a time")
    for number, sentence in enumerate(sentences, 1):
        if not sentence.strip():
            raise RecipeError(f"embed: sentence {number} is empty; leave it out")
        if len(sentence) > LONGEST:
            raise RecipeError(f"embed: sentence {number} has {len(sentence)} characters; send at most {LONGEST}")
    return sentences


def _explain_errors(app: FastAPI, details: Mapping[str, str]) -> None:
    """Let each error be `{"detail": …}`, one line that a person can act on; `details` has those of libraries."""

    async def explained(request: Request, error: Exception) -> Response:
        """An error as an answer."""
        status, detail = _told_of(error, details)
        return JSONResponse({"detail": detail}, status, getattr(error, "headers", None))

    for kind in (DataError, ModelError, RecipeError, RequestValidationError, OSError, HTTPException, MemoryError):
        app.add_exception_handler(kind, explained)


def _told_of(error: BaseException, details: Mapping[str, str]) -> tuple[int, str]:
    """The status of an error, and what is said of it."""
    if isinstance(error, RequestValidationError):  # a parameter that is missing or of another type
        return 422, "; ".join(map(_said_of, error.errors()))
    if isinstance(error, HTTPException):
        if isinstance(error.__cause__, OSError):  # a body whose temporary file cannot be written
            return _told_of(error.__cause__, details)
        return error.status_code, details.get(error.detail, error.detail)
    if isinstance(error, OSError):  # a file that cannot be read
        return 503, line_of(error) or str(error)
    if isinstance(error, MemoryError):
        return 503, "this machine has too little memory for this; ask again, or for less"
    return 503 if isinstance(error, GalleryError | BusyError) else 422, " ".join(str(error).split())


def _said_of(error: Mapping[str, Any]) -> str:
    """What is said of a parameter that does not fit: its name, and what is expected."""
    name = next(part for part in reversed(error["loc"]) if isinstance(part, str))
    if isinstance(error["input"], Uploaded):
        return f"{name}: expected text, not a file (`-F {name}=TEXT`)"
    if name == "picture" and error["type"] == "value_error":
        return f"{name}: expected a file (`-F {name}=@FILE`)"
    return f"{name}: {in_our_words(error['msg'])}"


class _Outermost:
    """Refuses what another page lets a browser send here, and lets no browser guess what an answer is.

    It gives the errors that middleware tells in plain text, and the end of the service, the form of all others,
    `{"detail": …}`.

    Args:
        app: that answers all else.
        names: that the service answers to.
        details: what is said instead of a text.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str], details: Mapping[str, str]) -> None:
        self._app, self._names, self._details = app, names, details

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        status = 0

        async def send_detail(message: Message) -> None:
            """Add the header; hold back the start of such an error until its text is known."""
            nonlocal status
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
                kind = Headers(raw=message["headers"]).get("Content-Type", "")
                status = message["status"] if message["status"] >= 400 and kind.startswith("text/plain") else 0
                if status:
                    return
            if status:
                text = message["body"].decode()
                await tell(status, self._details.get(text, text))
            else:
                await send(message)

        async def tell(status: int, detail: str) -> None:
            """Answer by an error."""
            await JSONResponse({"detail": detail}, status)(scope, receive, send_detail)

        origin = Headers(scope=scope).get("Origin") if scope["type"] == "http" else None
        if origin is not None and not self._is_ours(origin):
            await tell(403, f"the request is of a page of {origin[:100]!r}, which this service is not for")
            return
        try:
            await self._app(scope, receive, send_detail)
        except asyncio.CancelledError:  # uvicorn, after it has waited for requests to end
            await tell(503, "the service is being stopped; ask again when it runs")

    def _is_ours(self, origin: str) -> bool:
        """Is it the service itself, by one of its names?"""
        host = origin.partition("://")[2].lower()
        name = host if host.endswith("]") else re.sub(r":\d+$", "", host)
        return name != "" and any(
            one == "*" or one.lower() == name or (one.startswith("*") and name.endswith(one[1:])) for one in self._names
        )
