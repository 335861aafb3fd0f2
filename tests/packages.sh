#!/usr/bin/env bash
# Makes the Debian packages of a build, and in a bare system installs them, trains with the programs, builds a project with the
# library by CMake and by pkg-config, and removes them. Part of what is done before a release.
# Usage: tests/packages.sh [--build FOLDER] [--folder F] [RELEASE]
#   RELEASE         of Debian; it has to be the one that built. bookworm unless given
#   --build FOLDER  build/debian unless given; that one is built first
#   --folder F      where the bare system is kept, some 1 GB; one that is there is used again. Without it a temporary folder
# Needs root, debootstrap and a mirror: $MIRROR, or the one that this machine's APT uses. 0: all passed, 1: something failed,
# 77: something it needs is not here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder='' build='' release=bookworm
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=${2:?--build needs a folder} && shift ;;
    --folder) folder=${2:?--folder needs a folder} && shift ;;
    -*)
      echo "tests/packages.sh: unknown option $1; try --build FOLDER, --folder F" >&2
      exit 2
      ;;
    *) release=$1 ;;
  esac
  shift
done

. tests/bare_system.sh
command -v dpkg-shlibdeps >/dev/null || skip "dpkg-dev is not installed"

if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf --one-file-system "$folder"' EXIT
fi
if [ -z "$build" ]; then
  build=build/debian
  cmake --preset debian --log-level=WARNING >/dev/null
  cmake --build --preset debian -j "$(nproc)"
fi
packages=$folder/packages
rm -rf "$packages"
mkdir -p "$folder"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$packages" >"$folder/cpack.log" 2>&1 || { cat "$folder/cpack.log" && exit 1; }
rm -rf "$packages/_CPack_Packages"
for package in "$packages"/*.deb; do
  printf '%s, %s KB: ' "$(basename "$package")" $(($(stat -c %s "$package") / 1024))
  dpkg-deb --field "$package" Depends
done

root=$folder/$release
make_system "$root" "$release" ca-certificates
rm -rf "$root/tried"
mkdir "$root/tried"
cp "$packages"/*.deb "$root/tried"
sed -n '/^```cmake$/,/^```$/{/^```/!p}' examples/packaging/README.md | sed '/FetchContent/,/^FetchContent_Make/d' >"$root/tried/CMakeLists.txt"
cp examples/minimal.cpp "$root/tried/main.cpp"
cp /etc/resolv.conf "$root/etc/resolv.conf"

cat >"$root/tried/try.sh" <<'SH'
set -eux
cd /tried
export DEBIAN_FRONTEND=noninteractive
apt() { apt-get -qq -y --no-install-recommends "$@"; }
apt update
dpkg-query -W -f '${Package}\n' | sort >before
apt install ./tapeformer_*.deb
train_language_model train --run run --steps 20 --max-minutes 1
train_language_model generate --run run --prompt It --max-tokens 20
gradcheck_attention --layer single_head --mode causal >/dev/null
test -s /usr/share/doc/tapeformer/copyright
apt install ./*.deb g++ cmake make pkg-config
cmake -S . -B built >/dev/null
cmake --build built
built/mine /usr/share/common-licenses/GPL-3 20
g++ -std=c++17 -O1 main.cpp $(pkg-config --cflags --libs tapeformer) -o by_pkg_config
./by_pkg_config /usr/share/common-licenses/GPL-3 20
dpkg --purge $(for package in *.deb; do dpkg-deb --field $package Package; done)
left=$(find /usr /etc /var -name '*tapeformer*' -not -path '/var/cache/*' -not -path '/var/log/*')
test -z "$left"
SH
if in_system "$root" sh /tried/try.sh >"$folder/try.log" 2>&1 </dev/null; then
  echo "tests/packages.sh: installed, used and removed in $release"
else
  tail -n 20 "$folder/try.log"
  echo "tests/packages.sh: failed in $release" >&2
  exit 1
fi
