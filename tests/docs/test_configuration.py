"""The page of settings: every field of every class that a configuration file is decoded into, with a sentence about it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fairlead.cli.reference import FOLDER
from fairlead.cli.reference_config import SOURCES, settings
from fairlead.compose.agent import AgentConfig
from fairlead.compose.config import Peer, PlaneConfig, TlsFiles
from fairlead.compose.endpoints import EndpointsConfig
from fairlead.model.resources import Device
from fairlead.security.oidc import OidcSettings

CLASSES: tuple[type[Any], ...] = (PlaneConfig, AgentConfig, EndpointsConfig, TlsFiles, Peer, OidcSettings, Device)
PAGE = (FOLDER / "configuration.md").read_text()


def test_every_class_that_a_file_is_made_of_has_its_section() -> None:
    assert [name for name, _, _ in SOURCES] == [each.__name__ for each in CLASSES]
    assert all(f"\n## {each.__name__}\n" in PAGE for each in CLASSES)


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, path, _ in SOURCES])
def test_every_setting_has_a_sentence_about_it(name: str, path: str) -> None:
    assert [one.name for one in settings(name, path) if len(one.about) < 5] == [], "say beside the field what it is for"


@pytest.mark.parametrize("decoded", CLASSES, ids=lambda each: str(each.__name__))
def test_the_page_has_the_names_and_defaults_that_a_file_is_decoded_with(decoded: type[Any]) -> None:
    (path,) = [path for name, path, _ in SOURCES if name == decoded.__name__]
    told = {one.name: one.default for one in settings(decoded.__name__, path)}
    fields = {field.encode_name: field for field in msgspec.structs.fields(decoded)}
    assert list(told) == list(fields)
    for name, field in fields.items():
        assert (told[name] == "required") == field.required, name
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool) and field.default != "":
            assert told[name] == f"`{field.default}`", name
