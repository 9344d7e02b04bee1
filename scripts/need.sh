#!/usr/bin/env bash
# Installs missing programs from the packages of Debian: scripts/need.sh git redis-server …
# Never fails: what could not be installed is named, and whoever needs it says what that means.
# A failed attempt is remembered in bin/.missing/ so that the next start is not slowed down by another one.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin # nginx is there, where few but root look

package_of() {
	case $1 in
	rg) echo ripgrep ;;
	npm) echo nodejs npm ;;
	ps) echo procps ;;
	gcc) echo gcc libc6-dev ;; # the race detector links with C
	*) echo "$1" ;;
	esac
}

missing=()
for program in "$@"; do
	command -v "$program" >/dev/null || missing+=("$program")
done
[ ${#missing[@]} -gt 0 ] || exit 0

failed=bin/.missing
wanted=()
for program in "${missing[@]}"; do
	if [ -e "$failed/$program" ]; then
		echo "$program is not installed, and installing it failed before (to try again: rm $failed/$program)" >&2
	else
		wanted+=("$program")
	fi
done
[ ${#wanted[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
	as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
	echo "not installed: ${wanted[*]} (installing needs apt-get and root or sudo)" >&2
	exit 0
fi

# Debian starts a service as soon as its package is there. Forkyard runs a Redis of its own and tests an nginx of their
# own, so those of the system must not take ports 6379 and 80: this policy forbids starting, unless the machine has a
# policy already.
policy=/usr/sbin/policy-rc.d
own_policy=no
log=$(mktemp)
clean_up() {
	[ "$own_policy" = no ] || "${as_root[@]}" rm -f "$policy"
	rm -f "$log"
}
trap clean_up EXIT
if [ ! -e "$policy" ] && printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null; then
	own_policy=yes
	"${as_root[@]}" chmod 755 "$policy"
fi

apt() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q "$@" </dev/null >>"$log" 2>&1
}
# One at a time: a package that this release does not have must not keep the others out.
updated=no
for program in "${wanted[@]}"; do
	read -ra packages <<<"$(package_of "$program")"
	echo "installing ${packages[*]}" >&2
	if ! apt install --no-install-recommends "${packages[@]}" && [ "$updated" = no ]; then
		# The lists of a fresh machine are empty and those of an old one stale.
		updated=yes
		apt update || true
		apt install --no-install-recommends "${packages[@]}" || true
	fi
	if ! command -v "$program" >/dev/null; then
		mkdir -p "$failed"
		touch "$failed/$program"
		tail -n 3 "$log" >&2
		echo "could not install $program" >&2
	elif [[ $program =~ ^(redis-server|nginx)$ ]] && command -v systemctl >/dev/null; then
		# The policy is for now, this is for the next boot.
		"${as_root[@]}" systemctl disable --quiet "$program" 2>/dev/null || true
	fi
done
