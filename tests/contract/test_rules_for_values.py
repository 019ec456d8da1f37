"""``runner.contract.oracles``: named rules for values, against torch's flags and the published schema."""

from __future__ import annotations

from runner.cases.torch_names import flag_table
from runner.cases.yaml.schema import load_schema
from runner.contract.oracles import POLICIES, ROWS, RULED, STRICT


def test_each_flag_is_one_of_a_torch_that_is_said_to_have_it() -> None:
    for policy in POLICIES.values():
        for version in ("2.6", "2.13"):
            for name, value in policy.flags_of(f"{version}.0").items():
                assert version in flag_table()[name].torch and flag_table()[name].takes(value), name


def test_a_version_of_another_form_has_the_flags_of_all() -> None:
    assert POLICIES["deterministic"].flags_of("2.13.0.dev20260101-2") and not POLICIES["deterministic"].flags_of("2.9")
    assert POLICIES["bitwise"].flags_of("main").keys() == POLICIES["bitwise"].flags_of("2.6").keys()


def test_the_schema_has_the_same_rules() -> None:
    part = load_schema("definitions")["definitions"]["values"]
    assert tuple(part["then"]["enum"]) == STRICT and {*STRICT, *part["properties"]} == POLICIES.keys()


def test_a_rule_has_its_oracle() -> None:
    assert {*RULED} <= {*ROWS} and {*RULED.values()} <= {*STRICT}
