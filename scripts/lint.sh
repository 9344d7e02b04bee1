#!/usr/bin/env bash
# Runs every check that needs no running program, all of them even when one fails, and names those that failed.
set -euo pipefail
cd "$(dirname "$0")/.."

formatted() {
	local unformatted
	unformatted=$(go tool -modfile=tools/go.mod gofumpt -l .) || return 1
	[ -z "$unformatted" ] || { echo "not formatted (make format):" && echo "$unformatted" && return 1; }
}

# Compares contents, not commits: a template may be linted before it is committed.
generated() {
	local before after
	[ -n "$(git ls-files --cached --others --exclude-standard '*.templ')" ] || return 0
	before=$(checksums)
	go tool templ generate -log-level warn || return 1
	after=$(checksums)
	diff <(echo "$before") <(echo "$after") || { echo "generated files were stale or not committed; they are renewed now" && return 1; }
}
checksums() { find . -name '*_templ.go' -not -path '*/node_modules/*' -exec sha256sum {} + | sort -k 2; }

tidy() {
	local module difference
	for module in . tools lint; do
		difference=$(go -C "$module" mod tidy -diff) && [ -z "$difference" ] && continue
		grep '^[+-]' <<<"$difference" | head -n 20
		echo "run: go -C $module mod tidy"
		return 1
	done
}

scripts() {
	local script
	for script in .ci/run scripts/*.sh; do
		bash -n "$script" || return 1
		[ -x "$script" ] || { echo "$script is not executable" && return 1; }
	done
}

# Addresses in the lock file would tie every installation to the registry of whoever wrote it.
lock_file() {
	! grep -n '"resolved"' static/package-lock.json
}

failed=()
# A check says itself where it ends: as part of a condition it runs without the -e of this script.
check() {
	local name=$1
	shift
	local start=$SECONDS
	if ("$@"); then
		echo "ok    $name ($((SECONDS - start)) s)"
	else
		echo "FAIL  $name" >&2
		failed+=("$name")
	fi
}

check "formatting" formatted
check "generated templates" generated
check "modules are tidy" tidy
check "shell scripts" scripts
check "package lock" lock_file
check "go vet" go vet ./...
# staticcheck is one of its linters, and building it a second time would cost a minute.
check "golangci-lint, staticcheck included" bin/golangci-lint run

if [ ${#failed[@]} -gt 0 ]; then
	echo "lint: failed: ${failed[*]}" >&2
	exit 1
fi
