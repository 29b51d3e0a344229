"""What the methods share that the tracker is compared with: prompts, parsing, the walk through a dialogue, traces."""

from dialoom.methods._baseline.method import Asking, Baseline, BaselineConfig, BaselinePlugin
from dialoom.methods._baseline.scene import Question, Scene

__all__ = ["Asking", "Baseline", "BaselineConfig", "BaselinePlugin", "Question", "Scene"]
