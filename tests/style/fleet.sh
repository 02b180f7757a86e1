#!/usr/bin/env bash
# The files of examples/fleet: that the tools they are for can read them, where those are installed, and that they name
# nothing that crossfade does not know.
set -euo pipefail

cd -- "$1/examples/fleet"
broken=0
complain() {
  printf '%s\n' "$1"
  broken=1
}

for file in *.yaml; do
  if grep -q $'\t' "$file"; then complain "$file: a tab"; fi
  if python3 -c 'import yaml' 2>/dev/null; then
    python3 - "$file" <<'PYTHON' || complain "$file: cannot be read"
import sys, yaml
for document in yaml.safe_load_all(open(sys.argv[1])):
    pod = document["spec"]["template"]["spec"]
    container = pod["containers"][0]
    volumes = {volume["name"] for volume in pod["volumes"]}
    for part in pod["initContainers"] + pod["containers"]:
        for mount in part["volumeMounts"]:
            assert mount["name"] in volumes, mount["name"]
    assert container["command"][:2] == ["crossfade", "work"], container["command"]
    assert "memory" in container["resources"]["limits"]
PYTHON
  fi
done

if command -v systemd-analyze >/dev/null; then
  # It looks for the program and the user too, which are not there. Only what it cannot understand counts.
  found=$(systemd-analyze verify --man=no ./crossfade-work@.service 2>&1 |
    grep -E 'Unknown (key|section|lvalue)|Failed to parse|Invalid' || true)
  if [[ -n $found ]]; then complain "$found"; fi
fi
grep -q '^ExecStart=.*crossfade work %i$' crossfade-work@.service || complain "crossfade-work@.service: starts no worker"

while read -r variable; do
  grep -q "$variable" ../../docs/cli.md || complain "$variable is not in docs/cli.md"
done < <(grep -hoE 'CROSSFADE_[A-Z_]+' -- *.yaml ./*.service | sort -u)
exit "$broken"
