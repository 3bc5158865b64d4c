"""Loaded runs and texts of their tokens: caches, imports by several threads, similar experts."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mxd.backend.caches import StampedCache
from mxd.backend.errors import RunNotFoundError
from mxd.backend.inference import run_loader
from mxd.backend.inference.run_loader import RunLoader, Vocabulary
from mxd.trainer.language_model.tokenizer import token_texts
from mxd.trainer.utils import devices
from mxd.trainer.utils.devices import DeviceMemory
from tests.helpers.processes import ROOT
from tests.helpers.runs import END, World, byte_fallback, byte_tokenizer, metaspace


def test_a_run_is_cached_until_its_files_change(fitted: World, tmp_path: Path) -> None:
    shutil.copytree(fitted.data, tmp_path / "data")
    library = RunLoader(tmp_path / "data", capacity=2)
    first = library.run("small")
    assert library.run("small") is first
    (tmp_path / "data" / "runs" / "small" / "layer.safetensors").touch()
    assert library.run("small") is not first


def test_runs_are_evicted_by_their_number_and_by_memory(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = RunLoader(made_up, capacity=1)
    first = library.run("first")
    library.run("second")
    assert library.run("first") is not first
    monkeypatch.setattr(run_loader, "SMALL_BYTES", 0)
    monkeypatch.setattr(devices, "accelerator", lambda: torch.device("cuda"))
    library = RunLoader(made_up, capacity=8)
    first = library.run("first")
    for total, is_kept in ((400, True), (399, False)):  # a quarter holds both runs of 50 bytes, or not
        monkeypatch.setattr(devices, "device_memory", lambda _device, total=total: DeviceMemory(total, total))
        for loaded in (first, library.run("second")):
            loaded.weight_bytes = 50
        assert (library.run("first") is first) is is_kept


def test_only_runs_of_the_folder_are_loaded(fitted: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("small", "other"):
        shutil.copytree(fitted.data / "runs" / "small", tmp_path / name)
    monkeypatch.chdir(tmp_path)
    loader = RunLoader(fitted.data, capacity=1)
    assert loader.run("small").run.folder == fitted.data / "runs" / "small"
    with pytest.raises(RunNotFoundError):
        loader.run("other")


@pytest.mark.parametrize("by", ["gate", "output"])
def test_similar_experts_are_those_with_the_largest_cosine(live_client: TestClient, fitted: World, by: str) -> None:
    layer = RunLoader(fitted.data, 1).run("small").run.layer
    rows_ND = layer.get_parameter("gate.weight") if by == "gate" else layer.get_parameter("scaling_NO")
    cosines_N = torch.nn.functional.cosine_similarity(rows_ND, rows_ND[7].unsqueeze(0)).detach()
    cosines_N[7] = -2
    best = cosines_N.topk(5)
    answer = live_client.get("/api/runs/small/experts/7/similar", params={"by": by, "limit": 5}).json()
    assert [expert["expert"] for expert in answer["experts"]] == best.indices.tolist()
    assert [expert["similarity"] for expert in answer["experts"]] == pytest.approx(best.values.tolist(), abs=1e-5)
    others_N = np.delete(cosines_N.numpy(), 7)
    assert answer["p95"] == pytest.approx(np.percentile(others_N, 95), abs=1e-5)


FROM_BOTH_ENDS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from threading import Event
from mxd.backend.inference.run_loader import IMPORT_LOCK, import_compute_modules, preload_compute_modules
def tokenizer():
    with IMPORT_LOCK:
        from transformers import AutoTokenizer
def generation():
    import_compute_modules()
    from mxd.trainer.inference.generation import RowBatch
with ThreadPoolExecutor(3) as pool:
    works = [pool.submit(tokenizer), pool.submit(preload_compute_modules, 0.0, Event()), pool.submit(generation)]
for work in works:
    work.result()
"""


def test_concurrent_imports_from_different_modules() -> None:
    done = subprocess.run([sys.executable, "-c", FROM_BOTH_ENDS], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


TIMEOUT_SECONDS = 30.0


def test_a_warm_read_does_not_wait_for_a_cold_build() -> None:
    cache, building, finish = StampedCache[str](), Event(), Event()
    cache.get("warm", 1, lambda: "warm")

    def build() -> str:
        building.set()
        assert finish.wait(TIMEOUT_SECONDS)
        return "cold"

    with ThreadPoolExecutor(1) as pool:
        cold = pool.submit(cache.get, "cold", 1, build)
        assert building.wait(TIMEOUT_SECONDS)
        assert cache.get("warm", 1, lambda: pytest.fail("it is cached")) == "warm"
        finish.set()
        assert cold.result(TIMEOUT_SECONDS) == cache.get("cold", 1, lambda: pytest.fail("it is cached")) == "cold"
    assert not cache._turns


def test_a_run_that_is_removed_meanwhile_has_a_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = RunLoader(tmp_path, 1)
    missing = loader.fingerprint("gone")
    monkeypatch.setattr(Path, "exists", lambda _path: True)  # as if removed between a check and its use
    assert loader.fingerprint("gone") == missing


TOKENIZER = byte_tokenizer()
VOCABULARY = Vocabulary(TOKENIZER)


@given(st.lists(st.integers(0, len(TOKENIZER) + 1), max_size=30))
def test_texts_equal_decoding_token_by_token(ids: list[int]) -> None:
    assert list(VOCABULARY.texts(ids)) == token_texts(TOKENIZER, ids)


def test_parts_of_characters_have_a_name_and_tokens_are_found_by_text() -> None:
    first, second = TOKENIZER("é")["input_ids"]
    assert VOCABULARY.texts([first, second]) == ("", "é")
    assert [VOCABULARY.name(each) for each in (first, second, 0)] == ["<0xC3>", "<0xA9>", END]
    letters = {TOKENIZER(letter)["input_ids"][0] for letter in "Aa"}
    assert set(VOCABULARY.exact_matches("␣a")) == set(VOCABULARY.prefix_matches("a")) == letters
    assert VOCABULARY.exact_matches(END.upper()) == VOCABULARY.prefix_matches("<|end") == [0]
    assert VOCABULARY.exact_matches("<|end") == []
    assert VOCABULARY.prefix_matches("<|") == VOCABULARY.prefix_matches("  ") == []  # from three letters on


@pytest.mark.parametrize("build", [byte_fallback, metaspace])
def test_names_keep_leading_spaces(build: Callable[[], PreTrainedTokenizerFast]) -> None:
    tokenizer = build()
    vocabulary, ids = Vocabulary(tokenizer), tokenizer.get_vocab()
    for piece in ("▁a", "a", "▁"):
        assert vocabulary.name(ids[piece]) == piece.replace("▁", " ")
    assert set(vocabulary.exact_matches("a")) >= {ids["▁a"], ids["a"]}
