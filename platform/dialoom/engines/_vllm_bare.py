"""vLLM without dialoom around it: its batch interface and its tokenizer, for benches and the call log's tools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dialoom.engine import Message, Request
from dialoom.engines._vllm_setup import cpu_share, installed, set_environment
from dialoom.models import prepare_default_model
from dialoom.text import storable

if TYPE_CHECKING:
    from dialoom.engines.vllm import VLLMConfig


def model_path(config: VLLMConfig) -> str:
    """Folder or hub id to load."""
    return str(prepare_default_model()) if config.model == "default" else config.model


def prompt_tokens(config: VLLMConfig) -> Callable[[Sequence[Message]], list[int]]:
    """A function from messages to the token ids of their prompt, as the engine makes it; no model is loaded."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model_path(config), revision=config.revision or None)

    @lru_cache(maxsize=4096)
    def ids(messages: tuple[Message, ...]) -> list[int]:
        plain = [{"role": m.role, "content": storable(m.content)} for m in messages]
        found = tokenizer.apply_chat_template(
            plain, tokenize=True, return_dict=False, add_generation_prompt=True, **config.chat_template_kwargs
        )
        return [int(token) for token in found]

    return lambda messages: ids(tuple(messages))


def bare(config: VLLMConfig, requests: Sequence[Request]) -> tuple[Any, list[Any], list[Any]]:
    """(vLLM's offline engine with the same arguments, prompts, sampling parameters) for ``requests``."""
    from vllm import LLM

    from dialoom.engines import vllm as adapter

    build, _ = installed()
    set_environment(cpu_share([], 0, 1))
    tokens = prompt_tokens(config)
    arguments = adapter.engine_arguments(config, model_path(config), "", cpu=build == "cpu")
    arguments.pop("enable_log_requests", None)
    llm = LLM(**adapter.with_answer_limits(arguments), disable_log_stats=True)
    prompts = [{"prompt_token_ids": tokens(r.messages)} for r in requests]
    return llm, prompts, [adapter.sampling_parameters(r) for r in requests]
