"""Make `src/graphdiffusion/data/cora.npz` from the Parquet files of `graphdatascience`.

    pip download --no-deps graphdatascience && unzip graphdatascience-*.whl
    python tools/convert_cora.py graphdatascience/resources/cora src/graphdiffusion/data/cora.npz

Needs pyarrow. The result is byte for byte the same on every run.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

# The package numbers the subjects in the order of its own script; the names are in that script.
SUBJECTS = (
    "Neural_Networks",
    "Rule_Learning",
    "Reinforcement_Learning",
    "Probabilistic_Methods",
    "Theory",
    "Genetic_Algorithms",
    "Case_Based",
)

# The order of Planetoid's Cora, so that class numbers mean the same in `cora` and `cora-embedded`.
CLASS_NAMES = (
    "Theory",
    "Reinforcement_Learning",
    "Genetic_Algorithms",
    "Neural_Networks",
    "Probabilistic_Methods",
    "Case_Based",
    "Rule_Learning",
)


def convert(source: Path, target: Path) -> None:
    nodes = pq.read_table(source / "cora_nodes.parquet.gzip")
    citations = pq.read_table(source / "cora_rels.parquet.gzip")
    ids = nodes["nodeId"].to_numpy()
    words = np.array(nodes["features"].to_pylist(), dtype=np.uint8)
    renumber = np.array([CLASS_NAMES.index(subject) for subject in SUBJECTS], dtype=np.uint8)
    position = {paper: i for i, paper in enumerate(ids.tolist())}
    ends = [
        [position[paper] for paper in citations[column].to_pylist()]
        for column in ("sourceNodeId", "targetNodeId")
    ]
    np.savez_compressed(
        target,
        ids=ids.astype(np.int32),
        words=np.packbits(words, axis=1),
        num_words=np.array(words.shape[1]),
        labels=renumber[nodes["subject"].to_numpy()],
        class_names=np.array(CLASS_NAMES),
        citations=np.array(ends, dtype=np.uint16),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, help="folder with the two Parquet files")
    parser.add_argument("target", type=Path, help="the .npz file to write")
    arguments = parser.parse_args()
    convert(arguments.source, arguments.target)
