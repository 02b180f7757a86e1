#!/usr/bin/env bash
# Proves that links.sh can fail, and that it does not without a reason.
set -euo pipefail

check=$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/links.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/crossfade_links.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
mkdir -- "$work/docs"
printf 'see [here](docs/a.md), [there](https://example.org/b.md) and [below](#below)\n' >"$work/README.md"
# shellcheck disable=SC2016  # Markdown, not commands
printf '[up](../README.md#top)\n```\n[code](no/link.md)\n```\n' >"$work/docs/a.md"
"$check" "$work" || { printf 'FAILED: good links are called dead\n'; exit 1; }

printf '\n[gone](b.md)\n' >>"$work/docs/a.md"
if answer=$("$check" "$work"); then printf 'FAILED: a dead link was not noticed\n'; exit 1; fi
[[ $answer == *'./docs/a.md:6: b.md'* ]] || { printf 'FAILED: it says: %s\n' "$answer"; exit 1; }

rm -- "$work/docs/a.md"
printf 'no link\n' >"$work/README.md"
if "$check" "$work"; then printf 'FAILED: it is content without links\n'; exit 1; fi
printf 'links.sh can fail\n'
