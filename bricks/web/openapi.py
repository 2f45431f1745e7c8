"""The JSON interface as an OpenAPI 3.1 document: parameters and answers of each address.

A test compares it with the routes. Must not know how answers are computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bricks._version import __version__
from bricks.web.study_pages import FLAG, NUMBER, StudyForm, study_pages

if TYPE_CHECKING:
    from bricks.studies.study import StudyOffer, StudyPage
    from bricks.web.server_limits import ServerLimits

Schema = dict[str, Any]

_NUMBER: Schema = {"type": ["number", "null"]}
_TEXT: Schema = {"type": "string"}
_OPEN_TEXT: Schema = {"type": ["string", "null"]}


def _object(**properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": [*properties]}


_SCHEMAS: dict[str, Schema] = {
    "Error": _object(error=_TEXT),
    "Job": _object(
        job=_TEXT,
        name=_TEXT,
        state={"enum": ["queued", "reading", "decomposing", "predicting", "done", "failed"]},
        ahead={"type": "integer", "description": "jobs that wait before this one"},
        digest=_OPEN_TEXT,
        address=_OPEN_TEXT,
        open_axes={
            "type": "array",
            "items": _object(key=_TEXT, title=_TEXT, example={"type": "integer"}),
            "description": "dimensions that a failed upload lacks sizes of",
        },
        error=_OPEN_TEXT,
    ),
    "Answer": _object(
        system=_TEXT,
        system_key=_TEXT,
        target=_TEXT,
        target_name=_TEXT,
        runtime={"type": "object"},
        threads={"type": "integer"},
        estimate_s=_NUMBER,
        low_s=_NUMBER,
        high_s=_NUMBER,
        measured_share=_NUMBER,
        published_share=_NUMBER,
        predicted_share=_NUMBER,
        cost_per_million=_NUMBER,
        peak_bytes={"type": ["integer", "null"]},
        memory={"type": ["object", "null"]},
        no_memory=_OPEN_TEXT,
        error=_OPEN_TEXT,
        meets_slo={"enum": ["yes", "no", "uncertain", None]},
    ),
    "Agreement": _object(
        model=_TEXT,
        one=_TEXT,
        other=_TEXT,
        agree={"type": ["boolean", "null"]},
        output=_OPEN_TEXT,
        difference=_NUMBER,
        allowed=_NUMBER,
        reason=_OPEN_TEXT,
        errs={"type": ["array", "null"], "items": _TEXT},
    ),
    "Model": _object(
        answer=_TEXT,
        model=_TEXT,
        digest=_TEXT,
        granularity=_TEXT,
        batch={"type": "integer"},
        nodes={"type": "integer"},
        bricks={"type": "integer"},
        assumed={"type": "array", "items": _TEXT},
        answers={"type": "array", "items": {"$ref": "#/components/schemas/Answer"}},
        agreements={"type": "array", "items": {"$ref": "#/components/schemas/Agreement"}},
    ),
    "Where": _object(
        model=_TEXT,
        digest=_TEXT,
        target=_TEXT,
        estimate_s=_NUMBER,
        error=_OPEN_TEXT,
        operators={"type": "array", "items": {"type": "object"}},
        bricks={"type": "array", "items": {"type": "object"}},
    ),
    "Study": {"type": "object", "properties": {"answer": _OPEN_TEXT, "error": _TEXT}},
    "Systems": _object(systems={"type": "array", "items": {"type": "object"}}),
    "System": _object(key=_TEXT, name=_TEXT, identity={"type": "object"}),
    "Zoo": _object(models={"type": "array", "items": {"type": "object"}}),
}

_STUDY_TYPES = {NUMBER: "number", FLAG: "boolean"}

_BATCH = {
    "name": "batch",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1},
    "description": "the first dimension of inputs; by default the model's",
}
_THREADS = {"name": "threads", "in": "query", "schema": {"type": "integer", "minimum": 1}}
_BOUND = {
    "name": "slo_ms",
    "in": "query",
    "schema": {"type": "number", "exclusiveMinimum": 0},
    "description": "a bound on the latency (SLO) in milliseconds",
}
_WORDS = {"name": "q", "in": "query", "schema": _TEXT, "description": "words that must all occur"}


def _in_path(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": _TEXT}


def _operation(schema: str, summary: str, *parameters: Schema, status: int = 200) -> Schema:
    def answer(name: str, description: str) -> Schema:
        of = {"$ref": f"#/components/schemas/{name}"}
        return {"description": description, "content": {"application/json": {"schema": of}}}

    operation: Schema = {
        "summary": summary,
        "responses": {str(status): answer(schema, summary), "default": answer("Error", "why not")},
    }
    return {**operation, "parameters": list(parameters)} if parameters else operation


def _study(study: StudyOffer, page: StudyPage) -> Schema:
    """The operation of a study: an answer, or 202 and a job that makes it."""
    parameters = [
        {
            "name": field.name,
            "in": "query",
            "required": field.required,
            "schema": {"type": _STUDY_TYPES.get(field.kind, "string")},
            "description": field.title,
        }
        for field in StudyForm(study, page, ()).fields({})
    ]
    return _operation("Study", page.question, *parameters)


def description(limits: ServerLimits) -> Schema:
    """The OpenAPI document of a server with ``limits``."""
    upload = _operation(
        "Job",
        f"Decompose a model: an ONNX file of at most {limits.upload_bytes} bytes, without weights",
        {"name": "name", "in": "query", "schema": _TEXT},
        _BATCH,
        status=202,
    )
    octets = {"schema": {"type": "string", "format": "binary"}}
    upload["requestBody"] = {"required": True, "content": {"application/octet-stream": octets}}
    digest, target = _in_path("digest"), _in_path("target")
    zoo = _operation("Job", "Decompose a model of the zoo", _in_path("name"), _BATCH, status=202)
    return {
        "openapi": "3.1.0",
        "info": {"title": "bricks", "version": __version__},
        "paths": {
            "/api/models": {"post": upload},
            "/api/models/{digest}": {
                "get": _operation("Model", "The answers for a model", digest, _THREADS, _BOUND)
            },
            "/api/models/{digest}/{target}": {
                "get": _operation("Where", "Where the time goes on a target", digest, target)
            },
            "/api/jobs/{job}": {"get": _operation("Job", "How far a model is", _in_path("job"))},
            "/api/zoo": {"get": _operation("Zoo", "The models of the zoo", _WORDS)},
            "/api/zoo/{name}": {"post": zoo},
            "/api/systems": {"get": _operation("Systems", "The known systems", _WORDS)},
            "/api/systems/{key}": {"get": _operation("System", "A system", _in_path("key"))},
            **{f"/api{page.path}": {"get": _study(study, page)} for study, page in study_pages()},
            "/api/openapi.json": {"get": {
                "summary": "This description",
                "responses": {"200": {"description": "OpenAPI 3.1"}},
            }},
        },
        "components": {"schemas": _SCHEMAS},
    }  # fmt: skip
