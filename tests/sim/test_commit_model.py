"""The commit protocol keeps its promises under late landings, pauses and kills; each removed safeguard is noticed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from fairlead.sim.commit_model.__main__ import CAMPAIGN_SEEDS_MIN, CHECK_FAILED, MUST_HAPPEN, main
from fairlead.sim.commit_model.records import Mutant
from fairlead.sim.commit_model.world import Profile, run_seed

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Expectation:
    profile: Profile
    seeds_max: int  # about five times what the measured density asks for
    invariants: frozenset[str]


def expect(profile: Profile, seeds_max: int, *invariants: str) -> Expectation:
    return Expectation(profile, seeds_max, frozenset(invariants))


MUTANTS = {
    Mutant.NO_SEQ_GUARD: expect("general", 20, "S13", "fork"),
    Mutant.NO_EPOCH_GUARD: expect("general", 40, "S9"),
    Mutant.TAIL_BEFORE_ACQUIRE: expect("general", 60, "S13", "unjustified"),
    Mutant.SERVE_BEFORE_TAIL: expect("general", 200, "S13", "S14"),
    Mutant.REFUSAL_BEFORE_DURABLE: expect("general", 20, "unjustified"),
    Mutant.BLIND_RETRY_AFTER_UNKNOWN: expect("general", 20, "S13"),
    Mutant.UNAVAILABLE_SETTLES_UNKNOWN: expect("general", 120, "S13"),
    Mutant.UNAVAILABLE_WITHOUT_LEASE: expect("strays", 200, "S13"),
    Mutant.DUPLICATE_NOT_JOINED: expect("general", 60, "S13"),
    Mutant.ANSWER_COMMITTED_ON_FENCED: expect("general", 20, "S13"),
    Mutant.ANSWER_ABSENT_ON_FENCED: expect("general", 100, "S13"),
    Mutant.REFUSAL_FORGOTTEN: expect("general", 40, "S13"),
    Mutant.TRUST_OWN_LEASE_TOO_LONG: expect("leases", 20, "S14"),
    Mutant.COMMIT_EXTENDS_LEASE: expect("leases", 20, "S14"),
    Mutant.ACQUIRE_IGNORES_RENEWALS: expect("leases", 80, "S14"),
}


@pytest.mark.parametrize(("profile", "seeds"), [("general", CAMPAIGN_SEEDS_MIN), ("leases", 20), ("strays", 20)])
def test_no_promise_is_broken_while_every_safeguard_is_in_place(profile: Profile, seeds: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(1, seeds + 1):
        result = run_seed(seed, None, profile)
        again = f"python -m fairlead.sim.commit_model --profile {profile} --first-seed {seed} --seeds 1"
        assert not result.violations, f"{again}\n{result.violations}"
        counts += result.counts
    # A campaign that never met a case proves nothing about it.
    assert profile != "general" or [name for name in MUST_HAPPEN if not counts[name]] == []


@pytest.mark.parametrize("mutant", list(Mutant), ids=lambda mutant: mutant.name.lower())
def test_a_removed_safeguard_is_noticed_by_the_checker(mutant: Mutant) -> None:
    expected = MUTANTS[mutant]
    for seed in range(1, expected.seeds_max + 1):
        # An exception here would fail the test: a mutant must be found by what it did, not by a crash.
        found = {violation.invariant for violation in run_seed(seed, mutant, expected.profile).violations}
        if found & expected.invariants:
            return
    pytest.fail(f"{mutant.name} lived through {expected.seeds_max} seeds of the {expected.profile} profile")


def test_one_seed_is_one_run_in_any_process() -> None:
    here = run_seed(5)
    assert run_seed(5) == here
    program = "from fairlead.sim.commit_model.world import run_seed; print(run_seed(5).trace)"
    for hash_seed in ("0", "77"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here.trace


def test_the_command_reports_counts_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--json"]) == 0
    report = msgspec.json.decode(capsys.readouterr().out)
    assert report["results"]["seeds"] == 2
    assert report["results"]["violations"] == []
    assert report["results"]["counts"]["acknowledged"] > 0


def test_the_command_fails_when_a_mutant_stays_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    # The mutant that needs the other profile: in the general one a single seed does not show it.
    assert main(["--seeds", "1", "--mutant", "acquire_ignores_renewals"]) == CHECK_FAILED
    assert "0 seeds with violations" in capsys.readouterr().out


def test_the_command_prints_how_to_run_a_broken_seed_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "1", "--profile", "leases", "--mutant", "trust_own_lease_too_long"]) == 0
    again = "--first-seed 1 --seeds 1 --profile leases --mutant trust_own_lease_too_long"
    assert f"python -m fairlead.sim.commit_model {again}" in capsys.readouterr().out
