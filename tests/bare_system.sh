# Bare systems of Debian, each in a folder, for the tests that source this file; skips them where none can be made.
skip() {
  echo "$0: skipped: $1"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "making a system needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 2>/dev/null | head -n 1)}
[ -n "$mirror" ] || skip "this machine's APT has no mirror; set MIRROR"

# in_system ROOT COMMAND...: with /proc and terminals, which are gone again when the command has ended, and nothing of
# this environment.
in_system() {
  unshare --mount --pid --fork sh -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" &&
      mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts" && exec chroot "$0" "$@"' "$1" \
    /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin ${CI:+CI=$CI} "${@:2}"
}

# make_system ROOT RELEASE PACKAGES [COMMAND]: unless it is there; the command installs further packages.
make_system() {
  local log=$1-making.log
  [ ! -e "$1/made" ] || return 0
  echo "making the system in $1"
  rm -rf --one-file-system "$1"
  debootstrap --variant=minbase --include="$3" "$2" "$1" "$mirror" >"$log"
  in_system "$1" bash -ec "${4:-true}" >>"$log" 2>&1 </dev/null || { tail -n 20 "$log" && return 1; }
  touch "$1/made"
}
