"""Write the embedded corpus into the package."""

import gzip
from pathlib import Path

from .corpus import contents

FOLDER = Path(__file__).parents[2] / "nbl" / "corpus"

if __name__ == "__main__":
    trees, known = contents()
    (FOLDER / "toy.mrg.gz").write_bytes(gzip.compress(trees.encode(), mtime=0))
    (FOLDER / "toy.json").write_text(known, encoding="utf-8")
