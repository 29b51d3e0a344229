#!/usr/bin/env bash
# Makes .venv with everything dialoom needs. Seconds where nothing changed. Run it through `make setup`.
#   EXTRA=cpu|gpu   which build of vLLM (default: cpu)
#   PYTHON=...      the Python to use (default: the first of python3, python3.13, python3.12, python3.11 that is new enough)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
extra=${EXTRA:-cpu}
venv=.venv

say() { printf 'setup: %s\n' "$*" >&2; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if new_enough "$candidate"; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer found (looked for: ${PYTHON:-python3, python3.13, python3.12, python3.11}). Install one, or name it: make setup PYTHON=/path/to/python3.11"
}

case $extra in
  cpu | gpu) ;;
  *) die "EXTRA is '$extra'; allowed: cpu, gpu" ;;
esac

wanted=$(cat pyproject.toml constraints.txt infra/setup.sh | cksum | tr -d ' ')-$extra
stamp=$venv/.dialoom-setup
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && new_enough "$venv/bin/python"; then
  exit 0
fi

if ! new_enough "$venv/bin/python"; then
  python=$(find_python)
  say "making $venv with $("$python" -V)"
  rm -rf "$venv"
  "$python" -m venv "$venv" ||
    die "$python cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv"
fi
rm -f "$stamp"

pip=("$venv/bin/python" -m pip --disable-pip-version-check)
indexes=()
if [ "$extra" = cpu ] && [ "$(uname -s)" = Linux ]; then
  # vLLM's CPU build wants PyTorch's CPU build, which the usual index does not have.
  torch=$(grep '^torch==' constraints.txt)+cpu
  if ! "${pip[@]}" install --dry-run --no-deps --ignore-installed --quiet "$torch" >/dev/null 2>&1; then
    say "pip finds no $torch: adding PyTorch's own index"
    indexes=(--extra-index-url https://download.pytorch.org/whl/cpu)
  fi
fi
say "installing dialoom[$extra,dev] (a few minutes and 4 GB the first time)"
"${pip[@]}" install --quiet ${indexes[@]+"${indexes[@]}"} --constraint constraints.txt --editable ".[$extra,dev]" ||
  die "pip failed; its message stands above"
# They come along, are not used, and a torchvision that does not fit torch breaks 'import transformers'.
"${pip[@]}" uninstall --quiet --yes torchvision torchaudio torchcodec 2>/dev/null || true
printf '%s' "$wanted" >"$stamp"
say "done"
