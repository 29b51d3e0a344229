"""The default model, made from its package by two processes at once in an empty cache."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="needs the extra cpu or gpu"),
]


def test_two_processes_make_it_once(tmp_path: Path) -> None:
    environment = os.environ | {"DIALOOM_CACHE": str(tmp_path)}
    command = [sys.executable, "-m", "dialoom.models"]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        for _ in range(2)
    ]
    ended = [p.communicate() for p in both]
    assert [p.returncode for p in both] == [0, 0], ended
    folder = Path(ended[0][0].strip())
    assert ended[1][0].strip() == str(folder)
    assert sum("turning it into" in said for _, said in ended) == 1
    assert {p.name for p in folder.parent.iterdir()} == {folder.name, f"{folder.name}.lock"}
    code = (
        "from transformers import AutoTokenizer, AutoConfig\n"
        f"t = AutoTokenizer.from_pretrained({str(folder)!r})\n"
        "hi = [{'role': 'user', 'content': 'hi'}]\n"
        "ids = t.apply_chat_template(hi, add_generation_prompt=True, return_dict=False)\n"
        "print(ids.count(t.convert_tokens_to_ids('<|im_start|>')), ids.count(t.convert_tokens_to_ids('<|im_end|>')))\n"
        f"print(AutoConfig.from_pretrained({str(folder)!r}).max_position_embeddings)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "2", "8192"]
