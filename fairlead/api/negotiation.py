"""What form of answer a client asks for: objects, a Table, metadata only, aggregated discovery. Pure."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from fairlead.api.failures import Failure

ACCEPT_MAX: Final = 4096
As = Literal["", "Table", "PartialObjectMetadata"]

_FORMS: Final[dict[str, As]] = {
    "": "",
    "Table": "Table",
    "PartialObjectMetadata": "PartialObjectMetadata",
    "PartialObjectMetadataList": "PartialObjectMetadata",
}


class Media(NamedTuple):
    type: str
    parameters: dict[str, str]


def parse_accept(text: str) -> list[Media]:
    out = []
    for part in text[:ACCEPT_MAX].split(","):
        kind, *rest = (piece.strip() for piece in part.split(";"))
        parameters = dict(piece.split("=", 1) for piece in rest if "=" in piece)
        if kind:
            out.append(Media(kind.lower(), parameters))
    return out or [Media("*/*", {})]


def form_of(accept: str) -> As:
    """The first form in the client's order that we can give; 406 when it takes none of ours."""
    for media in parse_accept(accept):
        if media.type not in ("application/json", "application/*", "*/*"):
            continue
        form = _FORMS.get(media.parameters.get("as", ""))
        if form is None or (form and media.parameters.get("g") != "meta.k8s.io"):
            continue
        return form
    raise Failure(406, "only application/json is served, also as=Table and as=PartialObjectMetadata")


def discovery_version(accept: str) -> str:
    """Which aggregated discovery the client understands, best first; empty: the legacy form."""
    for media in parse_accept(accept):
        wanted = media.parameters
        if wanted.get("as") == "APIGroupDiscoveryList" and wanted.get("v") in ("v2", "v2beta1"):
            return wanted["v"]
        if media.type in ("application/json", "*/*") and "as" not in wanted:
            return ""
    return ""
