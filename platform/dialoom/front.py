"""The Pareto front of a run of several methods or cells, drawn into its folder at the end.

``python -m dialoom.front RUN`` draws it again.

Scoring all systems with their intervals takes memory, and drawing takes libraries: it is done in a process of its own,
and whatever becomes of that, the run is what it was.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from dialoom.runtime.cluster import own_paths
from dialoom.runtime.folder import RunFolder, open_folder
from dialoom.text import printable

PLOTS = ("pareto.html", "pareto.png")
MOST_SYSTEMS = 100
MOST_UNITS = 200_000
"""Larger runs are drawn by ``dialoom compare RUN --plot FILE``, when asked for."""
PATIENCE_S = 180.0


def draw_front(folder: RunFolder, definitions: Sequence[str], *, systems: int, units: int) -> str:
    """Draw ``PLOTS`` where the run has several systems and is not too large; returns what went wrong, or "".

    Plots of an earlier session go first, so that none is left that does not show the run as it is.
    """
    for name in PLOTS:
        folder.remove(name)
    if not 2 <= systems <= MOST_SYSTEMS or units > MOST_UNITS:
        return ""
    from dialoom import plot  # late: a run starts without it

    if plot.lacking():
        return ""
    try:
        with own_paths():
            words = [sys.executable, "-m", "dialoom.front", str(folder), *definitions]
            done = subprocess.run(words, capture_output=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no Pareto plot: {type(error).__name__}"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {done.returncode}"]
    return f"no Pareto plot: {printable(said[-1], 200)}"


def main(place: str, definitions: Sequence[str]) -> None:
    """Draw both files. Raises DialoomError, and whatever the drawing libraries raise."""
    from dialoom.overview import overview
    from dialoom.plot import pareto_chart, rendered
    from dialoom.stats import Resampling
    from dialoom.systems import scored_systems

    folder = open_folder(place)
    for name in ("run.json", *(f"traces/{t}.parquet" for t in ("dialogues", "turns", "calls"))):
        folder.fetch(name)
    scored = scored_systems(folder.path, list(definitions) or None, Resampling(), several=False)
    ranked = overview([s.system for s in scored])
    chart = pareto_chart(ranked.systems, ranked.lead)
    for name in PLOTS:
        folder.put(name, rendered(chart, name.rpartition(".")[2]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
