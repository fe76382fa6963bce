"""The targets of the fuzzer take their well-formed inputs, and what the fuzzer has kept."""

from pathlib import Path

import pytest
from tests.fuzz.targets import TARGETS

from telegrad.errors import TelegradError

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_well_formed_inputs_are_parsed(name):
    target = TARGETS[name]
    seeds = list(target.seeds())
    assert seeds
    for seed in seeds:
        target.parse(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_what_the_fuzzer_kept_is_parsed_or_refused(name):
    for path in sorted((CORPUS / name).glob("*")):
        try:
            TARGETS[name].parse(path.read_bytes())
        except TelegradError:
            pass


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_with_one_wrong_byte_are_parsed_or_refused(name):
    refused = 0
    for seed in TARGETS[name].seeds():
        for place in range(len(seed)):
            for wrong in (0x00, 0x80, 0xC1, 0xFF):
                try:
                    TARGETS[name].parse(seed[:place] + bytes([wrong]) + seed[place + 1 :])
                except TelegradError:
                    refused += 1
    assert refused
