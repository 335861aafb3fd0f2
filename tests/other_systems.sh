#!/usr/bin/env bash
# Runs both commands of the README from nothing on other releases of Debian: makes a bare system of each in a folder
# (debootstrap), clones what is committed here into it, runs examples/quickstart.sh and tests/run.sh there as root, and
# prints a table with exit codes and times.
# Usage: tests/other_systems.sh [--folder F] [--only quickstart|tests] [RELEASE...]
#   RELEASE     bookworm and trixie unless given
#   --folder F  where the systems are kept, some 3 GB each; those that are there already are used again, with the packages
#               they have. Without it a temporary folder, removed at the end
#   --only C    one of the two commands
# Needs root, debootstrap and a mirror: $MIRROR, or the one that this machine's APT uses. 0: all passed, 1: some failed,
# 77: something it needs is not here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder='' only='' releases=()
while [ $# -gt 0 ]; do
  case $1 in
    --folder) folder=${2:?--folder needs a folder} && shift ;;
    --only)
      only=${2:?--only needs quickstart or tests} && shift
      [[ $only == quickstart || $only == tests ]] || { echo "tests/other_systems.sh: --only is quickstart or tests" >&2 && exit 2; }
      ;;
    -*)
      echo "tests/other_systems.sh: unknown option $1; try --folder F, --only quickstart|tests" >&2
      exit 2
      ;;
    *) releases+=("$1") ;;
  esac
  shift
done
[ ${#releases[@]} -gt 0 ] || releases=(bookworm trixie)

skip() {
  echo "tests/other_systems.sh: skipped: $1"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "making a system needs root"
command -v debootstrap >/dev/null || skip "debootstrap is not installed"
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 2>/dev/null | head -n 1)}
[ -n "$mirror" ] || skip "this machine's APT has no mirror; set MIRROR"

if [ -z "$folder" ]; then
  folder=$(mktemp -d)
  trap 'rm -rf --one-file-system "$folder"' EXIT
fi
mkdir -p "$folder"

# in_system ROOT COMMAND...: with /proc and terminals, which are gone again when the command has ended, and nothing of
# this environment.
in_system() {
  unshare --mount --pid --fork sh -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" &&
      mount -t devpts -o newinstance,ptmxmode=0666 devpts "$0/dev/pts" && exec chroot "$0" "$@"' "$1" \
    /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin ${CI:+CI=$CI} "${@:2}"
}

declare -A scripts=([quickstart]=examples/quickstart.sh [tests]=tests/run.sh)
table='' status=0
for release in "${releases[@]}"; do
  root=$folder/$release
  if [ ! -e "$root/made" ]; then
    echo "$release: making the system in $root"
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase --include=ca-certificates "$release" "$root" "$mirror" >"$folder/$release-debootstrap.log"
    touch "$root/made"
  fi
  for command in ${only:-quickstart tests}; do
    rm -rf "$root/usr/src/$command"
    git clone -q --no-hardlinks . "$root/usr/src/$command"
    log=$folder/$release-$command.log
    echo "$release: ${scripts[$command]}, its output in $log"
    begun=$SECONDS code=0
    in_system "$root" "/usr/src/$command/${scripts[$command]}" >"$log" 2>&1 </dev/null || code=$?
    [ $code -eq 0 ] || { status=1 && tail -n 20 "$log"; }
    seconds=$((SECONDS - begun))
    table+=$(printf '%-10s %-8s %-24s %4d %5d:%02d' "$release" "$(in_system "$root" g++ -dumpfullversion 2>/dev/null || true)" \
      "${scripts[$command]}" $code $((seconds / 60)) $((seconds % 60)))$'\n'
  done
done
printf '\n%-10s %-8s %-24s %4s %8s\n%s' release g++ command exit time "$table"
exit $status
