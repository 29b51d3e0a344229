"""dialoom runs many dialogues through language-model methods and keeps every step."""

__version__ = "0.1.0"
