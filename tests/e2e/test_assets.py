"""The default model as it is really fetched and prepared: its tokenizer agrees with the engine's, and it answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino
import openvino_genai
import pytest
from tokenizers import Tokenizer

from server.assets.catalogue import DEFAULT_MODEL
from server.assets.store import resolve

pytestmark = pytest.mark.model

DETERMINISTIC = {
    "INFERENCE_PRECISION_HINT": "f32",
    "KV_CACHE_PRECISION": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0",
}
QUESTION = """\
<|im_start|>system
You are a helpful assistant.<|im_end|>
<|im_start|>user
What is the capital of France?<|im_end|>
<|im_start|>assistant
"""
TEXTS = [
    # plain words, case, contractions
    "hello", " hello", "hello ", "Hello, World!", "It's we're I'LL they'd DON'T", "antidisestablishmentarianism",
    "a" * 300,
    # numbers
    "0", "12345", "3.14159", "1,000,000.00", "v1.2.3-rc4", "a1b2c3", "١٢٣", "１２３", "x²³ ½ Ⅷ",
    # white space
    " ", "  ", "\n", "\n\n\n", "\t\t", " \n \t ", "a  b   c", "a\r\nb", "line \nline\n", "   indented",
    "\u00a0\u3000\u2003x", "\x0b\x0c",
    # code and markup
    "def f(x):\n    return x ** 2\n", "if (a && !b) { c[i++] += '\\n'; }", '{"a": [1, null, "é"]}',
    "<div class='x'>&amp;</div>", "# Title\n\n- **bold** `code`", "https://a.example/b?c=d&e=%20f#g",
    "C:\\dir\\file.txt", "SELECT * FROM t WHERE a<>'b';", "$$\\frac{a}{b}$$",
    # scripts
    "नमस्ते दुनिया, आप कैसे हैं?", "क्षत्रिय ज्ञान", "你好，世界！今天天气怎么样？", "日本語のテキスト カタカナ",
    "안녕하세요 세계", "مرحبا بالعالم", "שלום עולם", "สวัสดีชาวโลก", "Привет, мир", "Γειά σου Κόσμε",
    "Žluťoučký kůň", "naïve café", "cafe\u0301", "İstanbul ıǰ ß ẞ ﬁ",
    # emoji, joiners, oddities of Unicode
    "😀", "👨‍👩‍👧‍👦 family", "👍🏽 🏳️‍🌈 🇮🇳", "\u200b\u200d\ufeffx", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈", "\x00\x01\x7f", "\ufffd",
    "e\u0301\u0323\u0308",
    # control tokens, alone, doubled, amid text, and broken
    "<|im_start|>", "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b", " <|endoftext|> ", "<|im_end|><|im_end|>",
    "<|im_end", "<repo_name>x<file_sep>", QUESTION,
]  # fmt: skip


@pytest.fixture(scope="module")
def folder() -> Path:
    return resolve(DEFAULT_MODEL)


def test_tokenizer_agrees_with_the_engines(folder: Path) -> None:
    """The router's token ids are the engine's own, for every kind of text."""
    ours = Tokenizer.from_file(str(folder / "tokenizer.json"))
    engines = openvino_genai.Tokenizer(folder)
    different = [
        text
        for text in TEXTS
        if ours.encode(text, add_special_tokens=False).ids != engines.encode(text, add_special_tokens=False).input_ids.data[0].tolist()
    ]
    assert different == []


def test_tokenizer_gives_back_every_text(folder: Path) -> None:
    """What was encoded is decoded unchanged."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    assert tokenizer.decode_batch(ids, skip_special_tokens=False) == TEXTS


@pytest.mark.slow  # the stack and the demo ask it the same on the way to everything else
@pytest.mark.parametrize("properties", [{}, DETERMINISTIC], ids=["default", "deterministic"])
def test_model_answers(folder: Path, properties: dict[str, str]) -> None:
    """The prepared folder serves both the fast and the deterministic profile."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    answer = generate(folder, properties, tokenizer.encode(QUESTION, add_special_tokens=False).ids)
    assert tokenizer.decode(answer) == "The capital of France is Paris."


def generate(folder: Path, properties: dict[str, str], ids: list[int]) -> list[int]:
    """Return the greedy answer's token ids, stepping the engine as a worker does."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.num_kv_blocks, scheduler.max_num_batched_tokens, scheduler.max_num_seqs = 512, 128, 64
    scheduler.enable_prefix_caching = True
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(folder), scheduler, "CPU", properties)
    config = pipeline.get_config()
    config.max_new_tokens = 32
    handle = pipeline.add_request(0, openvino.Tensor(np.array([ids], dtype=np.int64)), config)
    answer: list[int] = []
    while pipeline.has_non_finished_requests():
        pipeline.step()
        # A read with nothing there waits with the interpreter's lock held, that is, for ever.
        if handle.can_read():
            answer += handle.read()[0].generated_ids
    return answer
