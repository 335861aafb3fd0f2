#!/usr/bin/env python3
"""Makes each call on files fail in turn, cuts it, kills the process at it and cuts the power at it, and kills processes at
random instants; checks each time that what was saved loads and leads to the bytes of an undisturbed run.
Usage: crashes.py LIBRARY TRAIN_LANGUAGE_MODEL TRAIN_TRANSLATION [--quick] [--kills N] [--jobs N] [--seed N] [--only CASE]
  LIBRARY  file_faults.cpp, built
  --quick  a sample of the calls and a few kills, in seconds
Prints a table of the faults and of what was said, and exits with 1 if anything was lost."""
import argparse
import collections
import concurrent.futures
import errno
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

from cases import all_cases, call, new_place

# Each of these at every call; the other errors, which only change the text, once for each call on each file.
EVERYWHERE = ['kill', 'torn', 'short', 'power', 'fail EIO', 'fail_on ENOSPC']
ONCE = ['fail ENOSPC', 'fail EDQUOT', 'fail EACCES', 'fail EROFS', 'fail_on EROFS']


class Count:
    def __init__(self):
        self.lock = threading.Lock()
        self.tried = collections.Counter()
        self.lost = []
        self.said = collections.Counter()

    def add(self, case, kind, problem, name='', message=''):
        with self.lock:
            self.tried[case.name, kind] += 1
            if message:
                self.said[kind.split(' ')[-1], message] += 1
            if problem:
                self.lost.append(f'{case.name}: {kind} {name}: {problem}')
                print('LOST', self.lost[-1], flush=True)


def faults(case, library, work):
    """The faults to try: (kind, number of the call, its name and file)."""
    with new_place(work) as place:
        log = place + '.log'
        call(case.command(place), {'LD_PRELOAD': library, 'FAULTS_FOLDER': place, 'FAULTS_LOG': log})
        with open(log) as file:
            calls = [line.split(' ', 2) for line in file.read().splitlines()]
    seen, chosen = set(), [('end', 0, '')]
    for number, name, path in calls:
        what = name + ' ' + re.sub(r'\d+', 'N', os.path.basename(path))
        chosen += [(kind, int(number), what) for kind in EVERYWHERE if kind != 'short' or name == 'write']
        if name == 'rename':
            chosen.append(('lost', int(number), what))
        if what not in seen:
            chosen += [(kind, int(number), what) for kind in ONCE]
        seen.add(what)
    return len(calls), chosen


def try_fault(case, library, work, fault, count):
    kind, number, what = fault
    kind_name, _, error = kind.partition(' ')
    with new_place(work) as place:
        code, said = call(case.command(place), {
            'LD_PRELOAD': library, 'FAULTS_FOLDER': place,
            'FAULTS': f'{kind_name} {number} {getattr(errno, error) if error else 0}'})
        said = said.strip().splitlines()[-1] if said.strip() else ''
        message = ''
        if code == 0 or kind == 'end':  # it says that all is done
            problem = case.difference(place)
        elif code == 2:
            message = re.sub(r'^train_\w+: ', '', re.sub(re.escape(place) + r'[^ :]*', 'PATH', said))
            text = os.strerror(getattr(errno, error)) if error else ''
            problem = '' if text in said else f'does not say "{text}": {said}'
            problem = problem or case.recovered(place)
        elif code == -9 and not error:
            problem = case.recovered(place)
        else:
            problem = f'exit code {code}: {said}'
        count.add(case, kind, problem, what, message)


def try_kill(case, work, seconds, number, seed, count):
    """Kills the command, and half of the time the one that resumes it too, at a random instant. Returns the kills."""
    draw = random.Random(seed * 1000003 + number)
    kills = 0
    with new_place(work) as place:
        command = case.command(place)
        while command is not None:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                child.wait(draw.uniform(0, seconds))
            except subprocess.TimeoutExpired:
                child.kill()
            if child.wait() == -9:
                kills += 1
            elif child.returncode != 0:
                break
            if draw.random() < 0.5:
                break
            command = case.goes_on(place)
        count.add(case, 'random kill', case.recovered(place))
    return kills


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('library')
    parser.add_argument('language')
    parser.add_argument('translation')
    parser.add_argument('--quick', action='store_true')
    parser.add_argument('--kills', type=int, default=500)
    parser.add_argument('--jobs', type=int, default=os.cpu_count())
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--only', default='')
    options = parser.parse_args()
    library = os.path.abspath(options.library)
    count, killed = Count(), {}
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for case in all_cases(os.path.abspath(options.language), os.path.abspath(options.translation)):
            if options.only not in case.name:
                continue
            case.set_up(work)
            calls, chosen = faults(case, library, work)
            if options.quick:
                chosen = random.Random(options.seed).sample(chosen, 10)
            list(pool.map(lambda fault, case=case: try_fault(case, library, work, fault, count), chosen))
            print(f'{case.name}: {calls} calls, {len(chosen)} faults tried', flush=True)
            begun = time.monotonic()
            with new_place(work) as place:
                call(case.command(place))
            seconds, most, kills, number = time.monotonic() - begun, 4 if options.quick else options.kills, 0, 0
            while kills < most:
                numbers = range(number, number + min(most - kills, 50))
                kills += sum(pool.map(lambda n, case=case: try_kill(case, work, seconds, n, options.seed, count), numbers))
                number = numbers.stop
            killed[case.name] = kills
            print(f'{case.name}: {kills} kills at random instants of {seconds:.2f} s', flush=True)
    print('\n| program | fault | tried |\n|---|---|---|')
    for (name, kind), times in sorted(count.tried.items()):
        print(f'| {name} | {kind} | {killed[name] if kind == "random kill" else times} |')
    print('\n| error | said | times |\n|---|---|---|')
    for (error, message), times in sorted(count.said.items()):
        print(f'| {error} | {message} | {times} |')
    print(f'\n{sum(count.tried.values())} tried, {len(count.lost)} lost')
    return 1 if count.lost else 0


if __name__ == '__main__':
    sys.exit(main())
