"""Says which files in a folder are the largest."""

import argparse
import hashlib
import json
import os
import sys

# The hash of the token that may ask, so that this file does not hold the secret itself.
ALLOWED = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--most", type=int, default=3)
    parser.add_argument("folder")
    args = parser.parse_args()

    token = sys.stdin.read()
    if hashlib.sha256(token.encode()).hexdigest() != ALLOWED:
        print("this token may not ask", file=sys.stderr)
        return 77

    sizes = []
    for folder, _, names in os.walk(args.folder):
        for name in sorted(names):
            path = os.path.join(folder, name)
            size = os.path.getsize(path)
            sizes.append((size, path))
            print(json.dumps({"file": path, "bytes": size}))
    sizes.sort(reverse=True)
    print(json.dumps({"files": len(sizes), "largest": [path for _, path in sizes[: args.most]]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
