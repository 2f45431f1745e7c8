"""Learn from the published measurements again, after a change of what learning gives.

``make learned`` runs it: it writes the ``.learned.npz`` files in ``cache/published`` and their
digests in the index. A change of the predictor needs a new version in
``bricks/predict/learned_file.py``, or of cards in ``bricks/predict/kernels/learned_kernels.py``,
first, so that files of the old one are left out.
"""

from __future__ import annotations

from pathlib import Path

from bricks.analysis.publishing import learn_again

PLACE = Path(__file__).resolve().parent.parent / "cache" / "published"


if __name__ == "__main__":
    for entry in learn_again(PLACE):
        if entry.learned is not None:
            size = (PLACE / entry.learned.file).stat().st_size
            print(f"{entry.learned.file}: {size / 1e6:.1f} MB")
