#!/usr/bin/env bash
# Makes sure that what the build needs is installed; called by quickstart.sh and tests/run.sh.
# On Debian and Ubuntu it installs what is missing when it may (root, or sudo without a password), and
# otherwise lists it and exits with 2. Arguments name further packages that are welcome but not required.
set -euo pipefail

required=(g++ cmake ninja-build libxtensor-dev libxtensor-blas-dev libxsimd-dev libopenblas-openmp-dev
  libdnnl-dev libsentencepiece-dev libutf8proc-dev libyaml-dev libpcre2-dev nlohmann-json3-dev libcli11-dev
  doctest-dev)

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "This is not Debian or Ubuntu, so nothing is installed here. The build needs a C++17 compiler with OpenMP," \
    "CMake 3.25, Ninja, xtensor 0.24, xtensor-blas, xsimd, OpenBLAS (OpenMP variant), oneDNN, SentencePiece" \
    "(with its training library), utf8proc, libyaml, PCRE2, nlohmann-json, CLI11 and doctest; CMake now looks for them."
  exit 0
fi

# missing_of PACKAGE...: those that are not installed, one a line.
missing_of() {
  local installed
  installed=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/ installed$//p') || true
  printf '%s\n' "$@" | grep -vxF "$installed" || true
}

if [ "$(id -u)" = 0 ]; then
  as_root=()
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root=(sudo -n)
else
  as_root=(false)
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 "$@" </dev/null; }
install() { apt install -y --no-install-recommends "$@"; }

mapfile -t missing < <(missing_of "${required[@]}")
if [ ${#missing[@]} -gt 0 ]; then
  if [ "${as_root[*]}" = false ]; then
    {
      echo "These packages are missing, and installing them needs root:"
      printf '  %s\n' "${missing[@]}"
      echo "Please run:"
      echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}"
    } >&2
    exit 2
  fi
  echo "Installing: ${missing[*]}"
  # The package lists may be absent or too old; only then are they fetched.
  if ! install "${missing[@]}" >/dev/null 2>&1 && ! { apt update && install "${missing[@]}" >/dev/null; }; then
    echo "apt-get could not install: ${missing[*]} (its messages are above)" >&2
    exit 2
  fi
fi

[ $# -eq 0 ] && exit 0
mapfile -t missing < <(missing_of "$@")
# One by one: what a release lacks must not keep the others away.
for package in "${missing[@]}"; do
  install "$package" >/dev/null 2>&1 || echo "Continuing without: $package (optional)"
done
