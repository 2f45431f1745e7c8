from probed import here, probed

__all__ = ["here", "probed"]
