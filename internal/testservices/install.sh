#!/usr/bin/env bash
# Installs what tests need besides Go, if it is missing: Redis, PostgreSQL, pgbouncer and nginx, which they start on free ports, and a JDK (17 or later)
# and Node (18 or later), in which they run the examples of docs/integrate.md. Debian and Ubuntu, as root. Nothing is started.
set -euo pipefail
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
{ command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 || missing+=(postgresql)
command -v pgbouncer >/dev/null || missing+=(pgbouncer)
command -v nginx >/dev/null || missing+=(nginx)
# "java File.java" needs the compiler, which a mere JRE does not have.
{ command -v java && command -v javac; } >/dev/null || missing+=(openjdk-17-jdk-headless)
command -v node >/dev/null || missing+=(nodejs)
if command -v node >/dev/null && [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 18 ]; then
  echo "node is $(node --version), the tests of docs/integrate.md need 18 or later: install one by hand" >&2
  exit 1
fi
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
apt-get update -qq -o Acquire::Retries=3
# A distribution has one or two JDKs; where 17 is not among them, the default one is later.
if ! apt-cache show openjdk-17-jdk-headless >/dev/null 2>&1; then
  missing=("${missing[@]/openjdk-17-jdk-headless/default-jdk-headless}")
fi
mkdir -p /usr/share/man/man1 # slim images have none, and the JDK's package fails without
apt-get install -o Acquire::Retries=3 -y -qq --no-install-recommends "${missing[@]}" >/dev/null
