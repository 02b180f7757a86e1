#!/usr/bin/env bash
# Every relative link of every Markdown file leads to a file or folder. Prints "FILE:LINE: LINK" per dead one.
set -euo pipefail

(($# == 1)) || { printf 'usage: %s ROOT\n' "${0##*/}" >&2; exit 2; }
cd -- "$1"

dead=0 links=0
while IFS= read -r -d '' file; do
  # Fenced code holds no links; its lines are blanked, so that the numbers stay.
  while IFS=: read -r line link; do
    link=${link#](} link=${link%)} link=${link%% *} link=${link%%#*}
    case $link in '' | *://* | mailto:*) continue ;; esac
    links=$((links + 1))
    if [[ ! -e $(dirname -- "$file")/$link ]]; then
      printf '%s:%s: %s\n' "$file" "$line" "$link"
      dead=$((dead + 1))
    fi
  done < <(awk '/^ *```/ { code = !code; print ""; next } { print code ? "" : $0 }' "$file" |
    grep -noE '\]\([^)]+\)' || true)
done < <(find . -name '*.md' ! -path './.git/*' ! -path './build*' -print0 | sort -z)

if ((dead)); then
  printf '%d dead link(s)\n' "$dead"
  exit 1
fi
# A checker that finds nothing to check would be content with anything.
((links > 0)) || { printf 'no relative link was found\n'; exit 1; }
printf '%d links\n' "$links"
