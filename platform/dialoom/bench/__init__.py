"""Measurements that a user repeats with ``dialoom bench``: the platform against the bare thing, in one run."""
