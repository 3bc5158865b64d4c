"""Every command that computes, with a language model that is split over both devices. ``auto-map`` puts the layers of
the runs ``one`` and ``two`` on ``sim:1``."""

import pytest

from tests.devices.plugin import TEXT, mxd

COMMANDS = (
    f"evaluate one {TEXT} --tokens 64 --seen-text --prompts 1 --resamples 100 --jacobian-tokens 2 --k 2 "
    "--other-dataset other.jsonl",
    f"evaluate one two {TEXT} --tokens 64 --seen-text --prompts 1 --jacobian-tokens 0 --together --layer-by-layer",
    f"recurrence one seeded {TEXT} --tokens 256 --min-tokens 2 --resamples 100",
    "evaluate-steering one --sampled-experts 2 --strengths 3 --prompts old --samples 2 --max-tokens 3",
    f"index seeded {TEXT} --tokens 256",
    "ablate one --experts 1,2,3",
    "contrast one --a text.jsonl --b other.jsonl --tokens 1k --shuffles 2",
    "probe one --labels labelled.jsonl --candidates 5",
    "probe one --labels labelled.jsonl --level token --candidates 5",
    "route one fox",
    "find one two --prompt old --wanted fox --unwanted dog --hits 2",
    "circuit one two --prompt fox --nodes 8",
    "circuit one two --prompt fox --errors dropped --target 5 --against 6 --position 1 --nodes 4 --dtype bfloat16",
    "circuit one two --prompt fox --target-expert two/3 --nodes 4 --check none",
    f"finetune one two {TEXT} --context-length 16 --tokens 128 --batch-tokens 64 --name {{run}}-tuned",
    "export one --format vectors --experts 1,2 --out vectors-tuned",
    "export one --format gguf --experts 1 --out gguf-tuned",
)
WITHOUT_LANGUAGE_MODEL = tuple(f"export one --format {name} --out {name}" for name in ("json", "neuronpedia"))
EDITS = {
    "scale": "1:scale:3",
    "add": "1:add:2",
    "set": "1:set:4",
    "ablate": "1:ablate",
    "another layer": "two/3:add:4",
    "positions": "1:add:2 --positions 1,2",
    "replace": "1:add:2 --mode replace --scope generated",
    "condition": "1:add:2@when:2>0",
    "condition on another layer": "two/1:add:2@when:one/2<=median",
    "prompt": "1:add:2@prompt",
    "ramp": "1:add:2@ramp:3 --edit 2:ablate@first:2 --edit 3:set:1@fade:2 --edit 4:add:1@generated",
    "until": "1:add:2@until:a",
    "sampling": "1:add:2 --top-k 5 --top-p 0.5 --temperature 2 --samples 3 --repetition-penalty 1.5 --stop zz",
    "greedy": "1:add:2 --temperature 0 --k 2",
}


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("command", (*COMMANDS, *WITHOUT_LANGUAGE_MODEL))
def test_every_command_on_a_split_language_model(command: str) -> None:
    mxd(f"{command} --device auto-map")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("command", [f"{COMMANDS[0]} --seed 1", COMMANDS[4], COMMANDS[-3].replace("-tuned", "-whole")])
def test_commands_on_one_device(command: str) -> None:
    mxd(f"{command} --device auto")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("device", ["auto", "auto-map"])
def test_every_kind_of_steering(device: str) -> None:
    for edit in EDITS.values() if device == "auto" else (EDITS["condition on another layer"], EDITS["sampling"]):
        mxd(f"steer one fox --max-tokens 4 --device {device} --edit {edit}")
