"""What a failed worker says: the useful line, without secrets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evertrain.launcher.failure import explain, last_words, redact, secret_values

NONE = Path("/nonexistent/error.json")


def said(code: int, lines: list[str], error_file: Path = NONE, chars_max: int = 100) -> str:
    """The message."""
    return explain(code, error_file, lines, secrets=(), chars_max=chars_max)


@pytest.mark.parametrize(
    "content",
    [
        {"message": {"message": "ValueError: bad\nmore", "extraInfo": {"timestamp": "1"}}},
        {"message": "ValueError: bad", "timestamp": 1},
    ],
)
def test_torchs_error_file_is_believed_first(tmp_path: Path, content: object) -> None:
    (tmp_path / "e").write_text(json.dumps(content))
    assert said(1, ["RuntimeError: other"], tmp_path / "e") == "ValueError: bad"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"message": 3}', '{"message": {"message": null}}', "\xff"])
def test_an_error_file_that_is_none_leaves_the_output_to_speak(tmp_path: Path, content: str) -> None:
    (tmp_path / "e").write_text(content, encoding="latin-1")
    assert said(1, ["RuntimeError: other"], tmp_path / "e") == "RuntimeError: other"


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory"
SEGFAULT = "Fatal Python error: Segmentation fault"


@pytest.mark.parametrize(
    ("code", "lines", "message"),
    [
        (1, ["Traceback:", "  File x", OUT_OF_MEMORY, "bye"], OUT_OF_MEMORY),
        (1, ["step 1", "KeyError: 'x'", "", "  "], "KeyError: 'x'"),
        (3, ["step 1", "step 2", ""], "step 2"),
        (3, [], "exit code 3 without a word"),
        (-9, [], "killed by SIGKILL"),
        (-9, ["step 7"], "killed by SIGKILL; last line: step 7"),
        (-11, [SEGFAULT, "", "Current thread"], f"killed by SIGSEGV; last line: {SEGFAULT}"),
        (-40, [], "killed by signal 40"),
    ],
)
def test_the_most_useful_line_of_the_output_is_found(code: int, lines: list[str], message: str) -> None:
    assert last_words(code, lines, secrets=(), chars_max=200) == message


def test_a_long_message_is_cut() -> None:
    message = said(1, ["ValueError: " + "x" * 500])
    assert len(message) == 100
    assert message.endswith("x…")


def test_values_of_variables_with_secret_names_are_hidden_and_short_settings_are_not() -> None:
    secrets = secret_values(
        {"WANDB_API_KEY": "abcdef123", "TOKENIZERS_PARALLELISM": "false", "DB_PASSWORD": "abcdef", "HOME": "/home/x"},
        {"my_secret": "abcdef123456"},
    )
    assert secrets == ("abcdef123456", "abcdef123", "abcdef")
    assert redact("abcdef123456 false /home/x abcdef", secrets) == "[redacted] false /home/x [redacted]"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Authorization: bearer eyJhbG.x-y", "Authorization: Bearer [redacted]"),
        ("GET https://me:pa55@host:80/x failed", "GET https://me:[redacted]@host:80/x failed"),
        ("redis://:pa55@host", "redis://:[redacted]@host"),
        ("https://host:80/a@b is fine", "https://host:80/a@b is fine"),
    ],
)
def test_what_looks_like_a_credential_is_hidden(text: str, clean: str) -> None:
    assert redact(text, ()) == clean
