"""`$(NAME)` in commands, variables and exec probes, as people know it from Kubernetes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.agent.drivers.contract import Exit, Launch
from fairlead.agent.drivers.variables import ALL_BYTES_MAX, TEXT_BYTES_MAX, TooLong, command, environment
from fairlead.agent.launching import environment as environment_of
from fairlead.agent.settings import NodeDeclaration
from fairlead.model.ids import Uid
from fairlead.model.kinds.intent import EnvVar, Template
from fairlead.model.kinds.slot import SlotRef, Token
from fairlead.model.kinds.work import Binding, BindingSpec
from fairlead.model.meta import Metadata
from tests.agent.processes import SH, driven, instance


@pytest.mark.parametrize(
    ("word", "is_"),
    [
        ("--port=$(PORT)", "--port=8080"),
        ("$(HOST):$(PORT)", "a:8080"),
        ("$$(PORT)", "$(PORT)"),
        ("$(date)", "$(date)"),
        ("$(NOT_THERE)", "$(NOT_THERE)"),
        ("$PORT ${PORT} $$ $( PORT ) $(PORT", "$PORT ${PORT} $$ $( PORT ) $(PORT"),
        ("$(EMPTY)", ""),
        ("$(MADE)", "$(PORT)"),
        ("$(a.b-c)", "dotted"),
    ],
)
def test_a_variable_in_a_word_is_its_value(word: str, is_: str) -> None:
    values = {"PORT": "8080", "HOST": "a", "EMPTY": "", "MADE": "$(PORT)", "a.b-c": "dotted"}
    assert command((word,), values) == (is_,)


def test_a_variable_may_name_what_stands_before_it() -> None:
    said = {"URL": "http://$(HOST):$(PORT)", "BOTH": "$(URL) $(LATER)", "LATER": "x"}
    assert environment({"HOST": "a", "PORT": "1"}, said) == {
        "HOST": "a", "PORT": "1", "URL": "http://a:1", "BOTH": "http://a:1 $(LATER)", "LATER": "x",
    }  # fmt: skip


def test_what_the_agent_gives_stands_before_the_template_and_is_not_overridden() -> None:
    template = Template(command=("x",), env=(EnvVar("ADDRESS", "$(FAIRLEAD_ADDRESS):$(PORT_HTTP)"), EnvVar("PORT", "1")))
    spec = BindingSpec(SlotRef(Uid("w-1"), "api", 0), "n", Token(1, 1, 1))
    binding = Binding(metadata=Metadata(name="api-0", namespace="risk"), spec=spec)
    node = NodeDeclaration("n", "eu-central", address="10.0.0.7")
    got = environment({}, environment_of(binding, template, {"http": 20_001}, node))
    assert got["ADDRESS"] == "10.0.0.7:20001"
    assert got["PORT"] == "20001"


def test_variables_made_of_variables_do_not_grow_without_end() -> None:
    doubling = {"V0": "x" * 1024} | {f"V{step + 1}": f"$(V{step})$(V{step})" for step in range(40)}
    with pytest.raises(TooLong, match=rf"V7 is longer than {TEXT_BYTES_MAX} bytes"):
        environment({}, doubling)
    many = {"V": "x" * 100_000} | {f"W{number}": "$(V)" for number in range(100)}
    with pytest.raises(TooLong, match=rf"the environment is longer than {ALL_BYTES_MAX} bytes"):
        environment({}, many)
    with pytest.raises(TooLong, match=rf"the command is longer than {ALL_BYTES_MAX} bytes"):
        command(("$(V)",) * 100, {"V": "x" * 100_000})


async def test_a_program_and_its_probes_are_given_the_values(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        words = (SH, "-c", "echo $(PORT_HTTP) $(FAIRLEAD_DIR) $COLOUR; sleep 300")
        await made.start(Launch(instance(), words, {"PORT_HTTP": "20001", "COLOUR": "$(PORT_HTTP)-blue"}))
        assert await made.output() == f"20001 {made.work()} 20001-blue\n"
        assert (await made.driver.execute(instance(), (SH, "-c", "test $(PORT_HTTP) = 20001"), 30.0)).code == 0


async def test_what_becomes_too_long_is_not_started_and_says_why(tmp_path: Path) -> None:
    async with driven(tmp_path) as made:
        got = await made.driver.start(Launch(instance(), (SH, "$(V)$(V)"), {"V": "x" * 70_000}))
        assert isinstance(got, Exit)
        assert (got.code, got.cause) == (127, "unstartable")
        assert "word 2 of the command is longer than" in got.message
