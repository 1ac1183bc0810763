#!/usr/bin/env bash
# Installs the servers that tests need, if they are missing. Debian and Ubuntu, as root. Nothing is started, and a service that the
# package starts is stopped again if this script installed it: tests start their own on free ports.
set -euo pipefail
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
{ command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 || missing+=(postgresql)
[ ${#missing[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  echo "missing: ${missing[*]}. This is no Debian machine: install them by hand." >&2
  exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "missing: ${missing[*]}. Run as root once, or: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}"
# policy-rc.d keeps the packages from starting their services; it goes again afterwards.
policy=/usr/sbin/policy-rc.d
made=no
if [ ! -e "$policy" ]; then printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; made=yes; fi
trap '[ $made = yes ] && rm -f "$policy"' EXIT
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
