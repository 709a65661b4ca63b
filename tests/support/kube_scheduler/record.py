"""Record kube-scheduler's answers: `python -m support.kube_scheduler.record ORACLE SEED COUNT FILE.jsonl.gz`.

ORACLE is `oracle.go` built inside the sources of Kubernetes (as `cmd/corelane-oracle/main.go`). The file's
first line has version, seed and count; each other line is a case with the answer under `want`. Cases that
the oracle cannot answer (a pod that fits without preemption) are left out.
"""

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

from support.kube_scheduler.cases import cases

VERSION = "v1.36.2"


def record(oracle: str, seed: int, count: int, target: Path) -> int:
    """Write the file and return how many cases it holds."""
    asked = {case["name"]: case for case in cases(seed, count)}
    lines = "\n".join(json.dumps(case, separators=(",", ":")) for case in asked.values())
    run = subprocess.run(
        [oracle], input=lines, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True
    )
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    head = {"program": "kube-scheduler", "version": VERSION, "seed": seed, "count": count}
    recorded = [head, *(asked[answer["name"]] | {"want": answer["want"]} for answer in answers)]
    text = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in recorded)
    target.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    return len(answers)


if __name__ == "__main__":
    began = time.monotonic()
    written = record(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    print(f"{written} cases in {time.monotonic() - began:.1f} s", file=sys.stderr)
