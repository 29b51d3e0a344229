"""vLLM inside the process that hosts it: one ``AsyncLLM`` a replica, on its GPU or CPU build.

Paths that need a GPU have not been run by us.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from dialoom.answer_schema import bounded_json
from dialoom.engine import EngineConfig, EngineIdentity, Message, Request, Response
from dialoom.engines._thinking import OPEN, refuse_channels, split_thinking
from dialoom.engines._tool_calls import parse_tool_calls
from dialoom.engines._vllm_setup import (
    cpu_share,
    folder_revision,
    hub_revision,
    installed,
    replica_gpus,
    set_environment,
)
from dialoom.errors import (
    EngineBusy,
    EngineDown,
    EngineError,
    EngineRefused,
    PromptTooLong,
    RequestRefused,
    SchemaError,
)
from dialoom.models import DEFAULT, DEFAULT_REVISION, prepare_default_model
from dialoom.text import storable
from dialoom.usage import Usage

if TYPE_CHECKING:
    from vllm import RequestOutput, SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

_CPU_KV_CACHE_GIB = 2.0
_SHAPING = {"dtype", "max_model_len", "seed", "runner", "chat_template_kwargs", "reasoning_parser", "engine_args"}
_MAX_NUM_SEQS = {"cpu": 64, "gpu": 256, "": 256}


class VLLMConfig(EngineConfig, frozen=True):
    """Settings of the vllm engine."""

    model: str = "default"
    """``default`` (the embedded SmolLM2-135M-Instruct), a local model folder, or a hub id."""
    revision: str = ""
    """Branch, tag or commit of a hub model."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Precision of the weights."""
    max_model_len: int | None = Field(None, ge=16)
    """Tokens of prompt and answer together; None takes the model's own figure."""
    tensor_parallel: int = Field(1, ge=1)
    """GPUs that share each layer."""
    pipeline_parallel: int = Field(1, ge=1)
    """Groups of GPUs that hold the layers one after the other."""
    num_gpus: float | None = Field(None, ge=0)
    """GPUs that Ray reserves for a replica; None: tensor times pipeline parallelism, 0 on the CPU build."""
    replicas: int = Field(1, ge=1)
    """Engines with the same model."""
    gpu_memory_utilization: float = Field(0.9, gt=0, le=1)
    """Share of GPU memory a replica may use; on the CPU build ``kv_cache_gib`` decides."""
    kv_cache_gib: float | None = Field(None, gt=0)
    """Size of the KV cache; None: 2 GiB on the CPU build, what ``gpu_memory_utilization`` leaves on a GPU."""
    max_num_seqs: int | None = Field(None, ge=1)
    """Sequences in one batch at most; None: 64 on the CPU build, 256 on a GPU."""
    enforce_eager: bool = False
    """Skips compilation: a faster start, slower tokens. The default model on the CPU build always starts eager."""
    seed: int = 0
    """Seed of the engine."""
    runner: Literal["generate", "pooling"] = "generate"
    """``pooling`` runs an embedding model."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Given to the chat template, such as ``enable_thinking: false``."""
    reasoning_parser: str = ""
    """vLLM's name for the model's thinking format, such as ``qwen3``: answer schemas then hold after the thinking only.
    Thinking between ``<think>`` tags is separated from the answer in any case; models that think in channels of their
    own (gpt-oss) are refused at the start."""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's AsyncEngineArgs, such as ``quantization``; they win over the fields above."""


class VLLMEngine:
    """One replica."""

    def __init__(self, config: VLLMConfig, replica: int = 0) -> None:
        self._config = config
        self._replica = replica
        self._name = f"vllm/{replica}"
        self._numbers = itertools.count()
        self._llm: AsyncLLM | None = None
        self._tokenizer: Any = None
        self._context_tokens = 0
        self._opens_thinking = False

    @cached_property
    def identity(self) -> EngineIdentity:
        """Model, revision (hash of a local folder, commit of a hub model), vLLM's version, and what shapes answers.

        Raises EngineRefused where a local model folder cannot be read.
        """
        config = self._config
        shaping = {
            "dtype",
            "max_model_len",
            "seed",
            "runner",
            "chat_template_kwargs",
            "reasoning_parser",
            "engine_args",
        }
        flags = config.model_dump(include=shaping, exclude_defaults=True)
        if config.model == "default":
            model, revision = DEFAULT, DEFAULT_REVISION
        elif _is_folder(config.model):
            folder = Path(config.model).expanduser()
            model, revision = folder.name, folder_revision(folder)
        else:
            model, revision = config.model, hub_revision(config.model, config.revision)
        return EngineIdentity("vllm", model, revision=revision, version=installed()[1], flags=flags)

    async def start(self) -> None:
        """Load the model: 20 to 30 s for the default one. Raises EngineRefused with what to do where it cannot be."""
        build, _ = installed()
        if not build:
            hint = "Install dialoom[gpu], or dialoom[cpu] where there is no GPU."
            raise EngineRefused("vLLM is not installed", where=self._name, hint=hint)
        alone = self._config.tensor_parallel * self._config.pipeline_parallel == 1
        cores = sorted(os.sched_getaffinity(0)) if build == "cpu" and alone and hasattr(os, "sched_getaffinity") else []
        set_environment(cpu_share(cores, self._replica, self._config.replicas))
        path = str(prepare_default_model()) if self._config.model == "default" else self._config.model
        arguments = engine_arguments(self._config, path, self.identity.revision, cpu=build == "cpu")
        try:
            self._llm = _load(arguments)
            self._tokenizer = self._llm.get_tokenizer()
            self._context_tokens = self._llm.model_config.max_model_len
            if self._config.runner == "generate":
                refuse_channels(getattr(self._tokenizer, "chat_template", ""), self._config.model)
                self._opens_thinking = self._template_opens_thinking()
        except EngineError:
            await self.close()
            raise
        except Exception as error:
            await self.close()
            raise EngineRefused(
                f"vLLM cannot load '{self._config.model}': {type(error).__name__}: {error}",
                where=self._name,
                hint="The cause may stand above, in vLLM's own lines; VLLM_LOGGING_LEVEL=INFO shows more of them.",
            ) from error

    async def generate(self, request: Request) -> Response:
        """Answer one request. Raises EngineDown where vLLM has died, EngineBusy where it gave this one request up."""
        llm = self._running()
        if self._config.runner != "generate":
            hint = "Give the role an engine without 'runner: pooling'."
            raise EngineRefused(f"'{self._config.model}' runs for embeddings, not for answers", hint=hint)
        prompt = self._prompt(request)
        room = request.sampling.max_tokens
        if len(prompt) + room > self._context_tokens:
            raise PromptTooLong(
                f"{len(prompt)} prompt tokens and {room} for the answer do not fit {self._context_tokens}",
                where=self._name,
                hint="Shorten the context, lower max_tokens, or raise max_model_len if the model allows it.",
            )
        parameters = sampling_parameters(request)
        try:
            last: RequestOutput | None = None
            request_id = f"{self._replica}-{next(self._numbers)}"
            async for output in llm.generate({"prompt_token_ids": prompt}, parameters, request_id):
                last = output
        except asyncio.CancelledError:
            raise
        except Exception as error:
            raise self._mapped(error) from error
        if last is None or last.outputs[0].finish_reason in (None, "abort", "error"):
            if llm.errored:
                raise EngineDown("vLLM died during the call", where=self._name)
            raise EngineBusy("vLLM gave the call up", where=self._name)
        return self._response(last, with_tools=bool(request.tools))

    async def embed(self, texts: Sequence[str]) -> Response:
        """One vector a text, from an engine with ``runner: pooling``."""
        llm = self._running()
        if self._config.runner != "pooling":
            hint = "Give the role an engine with 'runner: pooling' and an embedding model."
            raise EngineRefused(f"'{self._config.model}' runs for generation, not for embeddings", hint=hint)
        from vllm import PoolingParams

        async def one(text: str) -> tuple[list[float], int]:
            ids = self._tokenizer(text, truncation=True, max_length=self._context_tokens)["input_ids"]
            request_id = f"{self._replica}-{next(self._numbers)}"
            stream = llm.encode({"prompt_token_ids": ids}, PoolingParams(task="embed"), request_id)
            outputs = [output async for output in stream]
            vector: list[float] = outputs[-1].outputs.data.float().tolist()
            return vector, len(ids)

        began = time.perf_counter()
        try:
            found = await asyncio.gather(*[one(t) for t in texts])
        except Exception as error:
            raise self._mapped(error) from error
        usage = Usage(sum([tokens for _, tokens in found]), run_s=time.perf_counter() - began)
        return Response.of_vectors([vector for vector, _ in found], usage, self._name)

    async def close(self) -> None:
        """End vLLM's processes."""
        if self._llm is not None:
            llm, self._llm = self._llm, None
            llm.shutdown()

    def _running(self) -> AsyncLLM:
        if self._llm is None:
            raise EngineDown("the engine was not started", where=self._name)
        if self._llm.errored:
            raise EngineDown("vLLM has died", where=self._name)
        return self._llm

    def _prompt(self, request: Request) -> list[int]:
        """Token ids of the messages in the model's own chat template."""
        messages = [{"role": m.role, "content": storable(m.content)} for m in request.messages]
        try:
            return self._templated(messages, [dict(t) for t in request.tools] or None)
        except Exception as error:
            hint = "Some templates take no system role, or want user and assistant in turn."
            what = f"the chat template refuses the messages: {error}"
            raise RequestRefused(what, where=self._name, hint=hint) from error

    def _templated(self, messages: list[dict[str, str]], tools: list[Any] | None = None) -> list[int]:
        ids: list[int] = self._tokenizer.apply_chat_template(
            messages,
            tools=tools,
            tokenize=True,
            return_dict=False,
            add_generation_prompt=True,
            **self._config.chat_template_kwargs,
        )
        return ids

    def _template_opens_thinking(self) -> bool:
        if not getattr(self._tokenizer, "chat_template", None):
            raise EngineRefused(
                f"'{self._config.model}' has no chat template", where=self._name, hint="Use an instruct model."
            )
        end = self._tokenizer.decode(self._templated([{"role": "user", "content": "x"}])[-8:])
        return bool(end.rstrip().endswith(OPEN))

    def _response(self, output: RequestOutput, *, with_tools: bool) -> Response:
        answer = output.outputs[0]
        thinking, text = split_thinking(OPEN + answer.text if self._opens_thinking else answer.text)
        calls, text = parse_tool_calls(text) if with_tools else ((), text)
        finish = "tool_calls" if calls and answer.finish_reason == "stop" else answer.finish_reason
        queue_s, run_s = _seconds(output.metrics)
        return Response(
            text=text,
            usage=Usage(
                prompt_tokens=len(output.prompt_token_ids or ()),
                cached_tokens=output.num_cached_tokens or 0,
                output_tokens=len(answer.token_ids),
                reasoning_tokens=len(self._tokenizer.encode(thinking, add_special_tokens=False)) if thinking else 0,
                queue_s=queue_s,
                run_s=run_s,
            ),
            finish_reason=finish or "stop",
            reasoning=thinking,
            tool_calls=calls,
            logprobs=_logprobs(answer),
            replica=self._name,
        )

    def _mapped(self, error: Exception) -> EngineError:
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        causes = (error, error.__cause__)
        what = f"{type(error).__name__}: {error.__cause__ or error}"
        if isinstance(error, EngineDeadError) or (self._llm is not None and self._llm.errored):
            return EngineDown(f"vLLM has died: {what}", where=self._name)
        if any(isinstance(cause, (VLLMClientError, ValueError, TypeError)) for cause in causes):
            return RequestRefused(what, where=self._name)
        return EngineError(what, where=self._name)


def engine_arguments(config: VLLMConfig, model: str, revision: str, *, cpu: bool) -> dict[str, Any]:
    """The keyword arguments of vLLM's AsyncEngineArgs for ``config``; ``model`` is the folder or hub id to load."""
    arguments: dict[str, Any] = {
        "model": model,
        "dtype": config.dtype,
        "max_model_len": config.max_model_len,
        "tensor_parallel_size": config.tensor_parallel,
        "pipeline_parallel_size": config.pipeline_parallel,
        "max_num_seqs": _max_num_seqs(config, "cpu" if cpu else "gpu"),
        "enforce_eager": config.enforce_eager or (cpu and config.model == "default"),
        "seed": config.seed,
        "runner": config.runner,
        "enable_prefix_caching": True if config.runner == "generate" else None,
        "enable_log_requests": False,
        "use_tqdm_on_load": False,
    }
    if config.kv_cache_gib is not None or cpu:
        arguments["kv_cache_memory_bytes"] = int((config.kv_cache_gib or _CPU_KV_CACHE_GIB) * 2**30)
    if cpu and config.runner == "generate":
        # A seeded request whose prompt is computed in pieces kills vLLM 0.32 on CPU ("CPU Generator does not use
        # offset"). Blocks of 32 tokens instead of 128: 96 % instead of 81 % of a shared 620-token head cached.
        arguments |= {"enable_chunked_prefill": False, "block_size": 32}
    if not cpu:
        arguments["gpu_memory_utilization"] = config.gpu_memory_utilization
    if config.model != "default" and not _is_folder(config.model) and revision:
        arguments |= {"revision": revision, "tokenizer_revision": revision}
    if config.reasoning_parser:
        arguments["reasoning_parser"] = config.reasoning_parser
    return arguments | config.engine_args


def _load(arguments: dict[str, Any]) -> AsyncLLM:
    from vllm import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**with_answer_limits(arguments)))


def with_answer_limits(arguments: dict[str, Any]) -> dict[str, Any]:
    """``arguments`` with the settings that keep answers to a schema short."""
    from vllm.config import StructuredOutputsConfig

    # White space between JSON tokens is legal and endless: only this setting rules it out, and only with this back end.
    limits = {"backend": "xgrammar", "disable_any_whitespace": True}
    if parser := arguments.get("reasoning_parser"):
        limits["reasoning_parser"] = parser
    return {"structured_outputs_config": StructuredOutputsConfig(**limits)} | arguments


def sampling_parameters(request: Request) -> SamplingParams:
    """Sampling and answer schema as vLLM takes them. Raises RequestRefused for a schema it cannot hold."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    limits = None
    if request.answer_schema is not None:
        try:
            limits = StructuredOutputsParams(json=bounded_json(request.answer_schema))
        except SchemaError as error:
            raise RequestRefused(error.what, where=f"answer schema {error.where}", hint=error.hint) from error
    sampling = request.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        max_tokens=sampling.max_tokens,
        top_p=sampling.top_p,
        seed=sampling.seed if sampling.temperature > 0 else None,
        stop=list(sampling.stop) or None,
        logprobs=0 if sampling.logprobs else None,
        structured_outputs=limits,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def _seconds(metrics: Any) -> tuple[float, float]:
    """Seconds waited and computed inside vLLM, from its monotonic time stamps; zeros where it kept none."""
    if metrics is None or not metrics.scheduled_ts:
        return 0.0, 0.0
    return max(0.0, metrics.scheduled_ts - metrics.queued_ts), max(0.0, metrics.last_token_ts - metrics.scheduled_ts)


def _logprobs(answer: Any) -> tuple[tuple[str, float], ...]:
    steps: Sequence[Mapping[int, Any]] = answer.logprobs or ()
    chosen = [step[token] for step, token in zip(steps, answer.token_ids, strict=False)]
    return tuple((c.decoded_token or "", float(c.logprob)) for c in chosen)


def _is_folder(model: str) -> bool:
    """Whether ``model`` is meant as a folder: hub ids are ``name`` or ``owner/name``, and no such folder is here."""
    return model.startswith(("/", "./", "../", "~")) or Path(model).is_dir()


def _max_num_seqs(config: VLLMConfig, build: str) -> int:
    return config.max_num_seqs or _MAX_NUM_SEQS[build]


class VLLMPlugin:
    """How the runtime makes vLLM engines: each in an actor of its own."""

    name = "vllm"
    config: type[EngineConfig] = VLLMConfig
    heavy = True

    def hosted(self, config: VLLMConfig) -> bool:
        """Always."""
        return True

    def create(self, config: VLLMConfig, *, replica: int) -> VLLMEngine:
        """An engine that has not loaded its model."""
        return VLLMEngine(config, replica)

    def prompt_tokens(self, config: VLLMConfig) -> Callable[[Sequence[Message]], list[int]]:
        """From messages to the token ids of their prompt; loads the tokenizer alone."""
        from dialoom.engines._vllm_bare import prompt_tokens

        return prompt_tokens(config)

    def resources(self, config: VLLMConfig) -> dict[str, float]:
        """GPUs by tensor and pipeline parallelism; no processor is reserved, or small machines starve the workers."""
        own = config.engine_args.get("distributed_executor_backend") == "ray"
        gpus = replica_gpus(config.tensor_parallel, config.pipeline_parallel, installed()[0], own_placement=own)
        return {"num_cpus": 0.0, "num_gpus": gpus if config.num_gpus is None else config.num_gpus}

    def replicas(self, config: VLLMConfig) -> int:
        """As the settings say."""
        return config.replicas

    def in_flight(self, config: VLLMConfig) -> int:
        """``concurrency``, else a full batch and an eighth more, so that a freed place is taken at once."""
        seqs = _max_num_seqs(config, installed()[0])
        return config.concurrency or seqs + max(2, seqs // 8)


PLUGIN = VLLMPlugin()
