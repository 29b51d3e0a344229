"""Average service JGA on SGD."""

from __future__ import annotations

import numpy as np

from dialoom.metric import Definition, Figure, Floats, Measure, Measured, value_of
from dialoom.metrics._input import ScoreInput
from dialoom.metrics.compat.fuzz import difflib_ratio
from dialoom.metrics.compat.sgd import frame_scores


def compute(data: ScoreInput) -> dict[str, Measured]:
    """The unweighted mean over services of each service's official fuzzy joint goal accuracy (``sgd_fuzzy``), so that
    a rare service weighs as much as a frequent one. The paper's exact definition is unconfirmed.
    """
    scores = frame_scores(data, difflib_ratio)
    joint, n_services = scores.values["joint_goal_accuracy"], len(data.services)
    cell = scores.service * data.n_dialogues + data.dialogue[scores.turn]
    size = n_services * data.n_dialogues
    columns = [np.bincount(cell, weights=w, minlength=size) for w in (joint, np.ones(len(joint)))]
    sums = np.stack(columns).astype(np.float64).reshape(2 * n_services, data.n_dialogues)
    value = value_of(_mean_over_services, sums.sum(axis=1))
    return {
        "joint_goal_accuracy": Measured(Figure(value, len(joint)), {}, sums, _mean_over_services, tuple(data.services))
    }


def _mean_over_services(sums: Floats) -> Floats:
    """``sums``: first half summed scores, second half frames, one entry a service; services without frames are out."""
    half = len(sums) // 2
    score, frames = sums[:half], sums[half:]
    means = np.divide(score, frames, out=np.zeros(np.shape(score)), where=frames > 0)
    present = (frames > 0).sum(axis=0)
    result: Floats = np.divide(means.sum(axis=0), present, out=np.full(np.shape(present), np.nan), where=present > 0)
    return result


PLUGIN = Definition(
    "sgd_average_service",
    "mean over services of the official fuzzy joint goal (the paper's exact definition is unconfirmed)",
    "ReacTOD (arXiv 2605.19077) reports an average service JGA on SGD; its exact definition is unconfirmed",
    (Measure("joint_goal_accuracy", "unweighted mean over services"),),
    compute,
    "frames",
)
