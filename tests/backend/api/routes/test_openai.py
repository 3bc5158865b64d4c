"""The OpenAI-compatible endpoints, driven by the unmodified client of OpenAI."""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.backend.api.routes.openai import StopFilter
from mxd.trainer.config.steering import Edit, Sampling, SteeringConfig
from mxd.trainer.inference.results import SteeredGeneration
from mxd.trainer.inference.steering import steer
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.tokenizer import Turn, chat_text
from mxd.trainer.storage.run import Run
from tests.helpers.processes import server
from tests.helpers.runs import World

PROMPT = "the old fox"
TEMPLATE = "{% for message in messages %}<{{ message.role[0] }}>{{ message.content }}{% endfor %}<a>"
MESSAGES: Any = [{"role": "system", "content": "sing"}, {"role": "user", "content": [{"type": "text", "text": PROMPT}]}]
EDIT = "3:add:9@first:8"


@pytest.fixture(scope="module")
def chatty(fitted: World, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A copy of the fitted run, with a chat template in its tokenizer."""
    data = shutil.copytree(fitted.data, tmp_path_factory.mktemp("chatty") / "data")
    run = Run.load("small", data)
    tokenizer = run.tokenizer
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(run.folder / "tokenizer")
    return Run.load("small", data)


@pytest.fixture(scope="module")
def url(chatty: Run) -> Iterator[str]:
    """Address of a server on the run."""
    with server(chatty.folder.parent.parent) as (address, _):
        yield address


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as it:
        yield it


def expected(fitted: World, prompt: str, edits: tuple[str, ...], **sampling: Any) -> tuple[str, ...]:
    run = Run.load("small", fitted.data)
    settings = {"temperature": 1, "top_p": 1, "repetition_penalty": 1, "max_tokens": 8} | sampling
    config = SteeringConfig(
        prompt=prompt,
        edits=tuple(Edit.model_validate(edit) for edit in edits),
        sampling=Sampling.model_validate(settings),
    )
    steps = steer(LanguageModel.load(run.config.language_model, "cpu"), run, config)
    return tuple(text.text for text in SteeredGeneration.collect(run.name, prompt, steps).steered)


def test_models_are_runs_and_sessions(client: openai.OpenAI, url: str) -> None:
    assert next(iter(client.models.list())).id == "small"
    assert client.models.retrieve("small").owned_by
    with pytest.raises(openai.NotFoundError, match="Unknown model 'big'"):
        client.models.retrieve("big")
    with pytest.raises(openai.NotFoundError, match="is not served here") as raised:
        client.models.retrieve("big\n1")
    assert raised.value.type == "invalid_request_error"
    steering = {"edits": [EDIT], "sampling": {"seed": 4, "temperature": 1, "max_tokens": 8, "repetition_penalty": 1.3}}
    body = {"name": "Loud fox", "steering": steering}
    saved: Any = client.post(f"{url}/api/runs/small/sessions", body=body, cast_to=object)
    assert "Loud fox" in [model.id for model in client.models.list()]
    explicit: Any = {"max_tokens": 8, "seed": 4, "extra_body": {"edits": [EDIT], "repetition_penalty": 1.3}}
    named, by_id, other = (
        client.completions.create(model=name, prompt=PROMPT, **more).choices[0].text
        for name, more in (("Loud fox", {}), (saved["id"], {}), ("small", explicit))
    )
    assert named == by_id == other


def test_a_completion_equals_that_of_the_trainer(client: openai.OpenAI, fitted: World) -> None:
    for edits in ((), (EDIT,)):
        answer = client.completions.create(
            model="small", prompt=PROMPT, max_tokens=8, seed=3, n=2, extra_body={"edits": edits}
        )
        assert tuple(choice.text for choice in answer.choices) == expected(fitted, PROMPT, edits, seed=3, samples=2)
        assert {choice.finish_reason for choice in answer.choices} <= {"length", "stop"}
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == len(PROMPT) + 1
        assert answer.usage.total_tokens - answer.usage.prompt_tokens == answer.usage.completion_tokens


def test_a_steered_chat_is_streamed(client: openai.OpenAI, fitted: World, chatty: Run) -> None:
    settings: Any = {
        "model": "small",
        "messages": MESSAGES,
        "max_tokens": 8,
        "seed": 1,
        "extra_body": {"edits": [EDIT]},
    }
    stream = client.chat.completions.create(**settings, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    prompt = chat_text(chatty.tokenizer, (Turn(role="system", text="sing"), Turn(role="user", text=PROMPT)))
    assert text == expected(fitted, prompt, (EDIT,), seed=1)[0]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] in ("length", "stop")
    assert chunks[-1].usage is not None
    whole = client.chat.completions.create(**settings)
    assert whole.choices[0].message.content == text
    assert whole.usage == chunks[-1].usage


def test_stop_sequences_are_not_part_of_the_text(client: openai.OpenAI) -> None:
    settings: Any = {"model": "small", "prompt": PROMPT, "max_tokens": 24, "seed": 5}
    free = client.completions.create(**settings).choices[0].text
    stop = free[5:7]
    stopped = client.completions.create(**settings, stop=[stop, "never"]).choices[0]
    assert (stopped.text, stopped.finish_reason) == (free[: free.index(stop)], "stop")
    stream = list(client.completions.create(**settings, stop=stop, stream=True))
    assert "".join(chunk.choices[0].text for chunk in stream) == stopped.text


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3), st.integers(1, 4))
def test_the_stop_filter_equals_a_search_in_the_whole_text(text: str, stops: list[str], size: int) -> None:
    passes, passed = StopFilter(stops), ""
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    grown = text[: min(ends)] if ends else text  # the generation ends with the token that completes a stop
    for place in range(0, len(grown), size):
        passed += passes.push(grown[place : place + size])
    passed += "" if ends else passes.flush()
    assert passed == (min((grown[: grown.find(stop)] for stop in stops if stop in grown), key=len) if ends else text)


@pytest.mark.parametrize(
    ("more", "param", "message"),
    [
        ({"frequency_penalty": 0.5}, "frequency_penalty", "Unsupported parameter: 'frequency_penalty'"),
        ({"extra_body": {"invented": 1}}, "invented", "Unsupported parameter: 'invented'"),
        ({"temperature": 9}, "temperature", "less than or equal to 5"),
        ({"extra_body": {"edits": ["3:add"] * 65}}, "edits", "at most 64"),
        ({"extra_body": {"edits": ["40:ablate"]}}, None, "40"),
        ({"extra_body": {"edits": ["3:ablate@soon"]}}, "edits.0", "Unknown clause"),
    ],
)
def test_errors_are_those_of_openai(
    client: openai.OpenAI, more: dict[str, Any], param: str | None, message: str
) -> None:
    with pytest.raises((openai.BadRequestError, openai.NotFoundError), match=message) as caught:
        client.completions.create(model="small", prompt=PROMPT, **more)
    assert (caught.value.type, caught.value.param) == ("invalid_request_error", param)
    harmless: Any = {"max_tokens": 1, "frequency_penalty": 0, "logit_bias": {}, "user": "me", "best_of": 1}
    client.completions.create(model="small", prompt=PROMPT, **harmless)


def test_simultaneous_requests_get_correct_answers(url: str, fitted: World) -> None:
    """Requests with different edits and seeds share batches, and each gets the text that it gets alone."""
    edits = [(), ("3:add:9",), ("7:set:4@when:3<=0",), (EDIT,)] * 4

    async def all_at_once() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

            async def ask(number: int) -> str:
                settings: Any = {"max_tokens": 8, "seed": number, "extra_body": {"edits": edits[number]}}
                stream = await client.completions.create(model="small", prompt=PROMPT, stream=True, **settings)
                return "".join([chunk.choices[0].text async for chunk in stream])

            return await asyncio.gather(*map(ask, range(16)))

    assert asyncio.run(all_at_once()) == [
        expected(fitted, PROMPT, edits[number], seed=number)[0] for number in range(16)
    ]
