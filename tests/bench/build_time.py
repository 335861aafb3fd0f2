#!/usr/bin/env python3
"""Where the time of a build goes: seconds per object, per source and per header.

Usage: tests/bench/build_time.py [FOLDER=build/release] [--most N] [--headers] [--over SECONDS]
  --most N        rows of each table, 15 unless given
  --headers       compiles each header alone too, and multiplies its seconds by the objects that read it; takes minutes
  --over SECONDS  only names the sources that take longer than this alone, for tests/structure.sh; a unit's time is divided
                  among its sources

Seconds are wall time, from the log of ninja: other work on the machine makes them longer. Exit code 2: no build there.
"""
import argparse
import collections
import json
import os
import re
import subprocess
import sys
import time


def objects_of(folder):
    """{object: seconds} of the newest build of each."""
    seconds = {}
    with open(os.path.join(folder, ".ninja_log")) as log:
        for line in log:
            fields = line.rstrip("\n").split("\t")
            if len(fields) == 5 and fields[3].endswith(".o"):
                seconds[fields[3]] = (int(fields[1]) - int(fields[0])) / 1000
    return seconds


def sources_of(folder, name):
    """The sources in an object: one, or those that a unit includes."""
    match = re.search(r"(.*/)?CMakeFiles/[^/]+\.dir/(.*)\.o$", name)
    if match is None:
        return [name]
    if "Unity/" not in name:
        return [os.path.normpath(os.path.join(match.group(1) or "", match.group(2).replace("__", "..")))]
    with open(os.path.join(folder, name[:-2])) as unit:
        return re.findall(r'#include "(.*)"', unit.read())


def print_table(title, rows, most):
    print(f"\n{title}")
    for seconds, name in sorted(rows, reverse=True)[:most]:
        print(f"{seconds:8.1f}  {name}")


def header_rows(folder, most):
    """(seconds alone x objects, text) of the headers that the most objects read."""
    uses = collections.Counter()
    listing = subprocess.run(["ninja", "-C", folder, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    for path in re.findall(r"^    (.*)$", listing, re.M):
        if re.search(r"/tapeformer/.*\.h$|/(nlohmann/json|CLI/CLI|doctest/doctest|xtensor/x\w+|xsimd/xsimd)\.hpp$|doctest\.h$", path):
            uses[path] += 1
    with open(os.path.join(folder, "compile_commands.json")) as commands:
        command = next(one["command"] for one in json.load(commands) if one["file"].endswith("/tape.cpp"))
    flags = [word for word in command.split()[1:] if re.match(r"-(I|isystem|std|march|D|f)", word)]
    for path, count in uses.most_common(most * 3):
        begin = time.perf_counter()
        subprocess.run(["c++", *flags, "-x", "c++", "-fsyntax-only", "-w", path], cwd=folder, stderr=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        yield seconds * count, f"{seconds:5.2f} s x {count:3d}  {path}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", default="build/release")
    parser.add_argument("--most", type=int, default=15)
    parser.add_argument("--headers", action="store_true")
    parser.add_argument("--over", type=float)
    options = parser.parse_args()
    if not os.path.exists(os.path.join(options.folder, ".ninja_log")):
        print(f"build_time.py: {options.folder} has no build; try tests/run.sh first", file=sys.stderr)
        return 2

    objects = objects_of(options.folder)
    of_source = {}
    for name, seconds in objects.items():
        sources = sources_of(options.folder, name)
        of_source.update((source, seconds / len(sources)) for source in sources)
    shares = [(seconds, source) for source, seconds in of_source.items()]
    if options.over is not None:
        for seconds, source in sorted(shares, reverse=True):
            if seconds > options.over:
                print(f"warning: {source} took {seconds:.0f} s to compile; a source should take less than {options.over:.0f}")
        return 0

    targets = collections.defaultdict(float)
    for name, seconds in objects.items():
        match = re.search(r"CMakeFiles/([^/]+)\.dir/", name)
        targets[match.group(1) if match else name] += seconds
    print(f"{sum(objects.values()):.0f} s for {len(objects)} objects")
    print_table("by target", [(seconds, name) for name, seconds in targets.items()], options.most)
    print_table("by object", [(seconds, name) for name, seconds in objects.items()], options.most)
    print_table("by source, each an equal part of its unit", shares, options.most)
    if options.headers:
        print_table("by header: alone, times the objects that read it", header_rows(options.folder, options.most), options.most)
    return 0


if __name__ == "__main__":
    sys.exit(main())
