"""Error messages about unknown names."""

from __future__ import annotations

from mxd.trainer.utils.display import suggest, unknown_expert, unknown_run


def test_the_nearest_name_is_suggested() -> None:
    assert suggest("stear", ["steer", "serve"]) == " Did you mean 'steer'?"
    assert suggest("xyz", ["steer", "serve"]) == ""


def test_messages_name_the_known_range_or_the_next_command() -> None:
    assert unknown_run("a", []) == "Unknown run 'a'. There are no runs yet. Train one with 'mxd train'."
    assert unknown_run("gpt-l8", ["gpt2-l8", "x"]) == (
        "Unknown run 'gpt-l8'. Did you mean 'gpt2-l8'? Run 'mxd runs' for a list."
    )
    assert unknown_expert(9999, "x", 4096) == "Unknown expert 9999. Run 'x' has experts 0 to 4095."
