#!/usr/bin/env python3
"""Disturbs runs as users and systems do: signals, a closed terminal, a pipe whose reader has gone, a stop; a full disk,
a read-only one, permissions that go, a folder that moves, a clock that runs backwards, two processes in one folder, a damaged
checkpoint. Checks the exit code, what is said, and that going on leads to the bytes of an undisturbed training.
Usage: disturbances.py LIBRARY TRAIN_LANGUAGE_MODEL TRAIN_TRANSLATION [--quick] [--only WORD]
  LIBRARY  file_faults.cpp, built
  --quick  some of them, with one program, in seconds"""
import argparse
import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from cases import LANGUAGE, TEXT, TRANSLATION, call, contents, differences, must

LONG = ['--steps', '3000', '--checkpoint-every', '100', '--validate-every', '500', '--log-every', '100']
UNABLE = 77


class Skipped(Exception):
    pass


def without_loop(options):
    """The options except those that LONG gives."""
    kept = list(options)
    for name in LONG[::2]:
        if name in kept:
            at = kept.index(name)
            del kept[at:at + 2]
    return kept


class Trainings:
    """A program, and the result of an undisturbed training."""

    def __init__(self, library, program, options, work):
        self.library, self.program, self.work, self.number = os.path.abspath(library), os.path.abspath(program), work, 0
        self.options = [*options, *LONG]
        self.folder = ''

    def set_up(self):
        must(self.command(self.new()))
        self.expected = contents(self.folder)
        return self

    def new(self):
        self.number += 1
        self.folder = f'{self.work}/{os.path.basename(self.program)}-{self.number}'
        return self.folder

    def command(self, folder, *more):
        return [self.program, 'train', '--run', folder, *self.options, *more]

    def start(self, folder=None, command=None, **how):
        """A training that has saved step 100 and is not nearly done."""
        folder = folder or self.new()
        child = subprocess.Popen(command or self.command(folder), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 **{'stderr': subprocess.PIPE, **how})
        self.wait_for_steps(folder, child.poll)
        return child

    def wait_for_steps(self, folder, ended):
        while ended() is None:
            with contextlib.suppress(OSError), open(folder + '/metrics.jsonl') as file:
                if '"step":200,' in file.read():
                    return
            time.sleep(0.002)

    def difference(self, folder):
        return differences(folder, self.expected)

    def resumes(self, folder):
        must([self.program, 'train', '--run', folder, '--resume'])
        assert not self.difference(folder), f'differs in {self.difference(folder)}'

    def ends(self, child, code, *words):
        said = child.communicate(timeout=60)[1]
        said = said.decode(errors='replace') if said else ''
        assert child.returncode == code, f'exit code {child.returncode}, not {code}: {said[-500:]}'
        for word in words:
            assert word in said, f'does not say "{word}": {said[-500:]}'
        return said


def signals(t):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        child = t.start()
        child.send_signal(number)
        t.ends(child, 130, 'finishing this', 'saved. Continue with: ')
        t.resumes(t.folder)


def a_second_signal_leaves_at_once(t):
    child, metrics = t.start(), t.folder + '/metrics.jsonl'
    os.mkfifo(t.folder + '/pipe')
    os.replace(t.folder + '/pipe', metrics)  # the training waits for somebody who reads it, and cannot save
    child.send_signal(signal.SIGTERM)
    time.sleep(2)
    child.send_signal(signal.SIGTERM)
    t.ends(child, 130, 'quit at once')
    os.remove(metrics)
    must([t.program, 'train', '--run', t.folder, '--resume', '--max-minutes', '1e-9'])


def ignored_signals_stay_ignored(t):
    def ignore():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    child = t.start(preexec_fn=ignore)
    child.send_signal(signal.SIGHUP)
    child.send_signal(signal.SIGINT)
    t.ends(child, 0)
    assert not t.difference(t.folder)


def a_closed_terminal_saves(t):
    folder = t.new()
    try:
        process, terminal = pty.fork()
    except OSError as error:
        raise Skipped(f'there are no terminals here: {error}') from error
    if process == 0:
        os.execv(t.program, t.command(folder))
    status = []

    def ended():
        if select.select([terminal], [], [], 0)[0]:
            with contextlib.suppress(OSError):
                os.read(terminal, 65536)
        done, code = os.waitpid(process, os.WNOHANG)
        if done:
            status.append(code)
        return status[0] if status else None

    t.wait_for_steps(folder, ended)
    os.close(terminal)
    assert not status
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert code == 130, f'exit code {code}'
    t.resumes(folder)


def a_log_that_nobody_reads_any_more_saves(t):
    for interrupts in (False, True):  # Ctrl-C ends the reader of a pipeline too
        child = t.start()
        child.stderr.close()
        child.stderr = None
        if interrupts:
            child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 130, f'exit code {child.returncode}'
        t.resumes(t.folder)


def a_stop_does_not_count_in_times(t):
    for stop in (signal.SIGTSTP, signal.SIGSTOP):
        begun = time.monotonic()
        child = t.start()
        child.send_signal(stop)
        time.sleep(4)
        child.send_signal(signal.SIGCONT)
        t.ends(child, 0, ' s: steps ')
        wall = time.monotonic() - begun
        with open(t.folder + '/metrics.jsonl') as file:
            lines = [json.loads(line) for line in file]
        told = sum(lines[-1]['seconds'].values())
        assert told < wall - 3, f'{told:.2f} s of {wall:.2f} s, of which 4 s were a stop'
        assert not t.difference(t.folder)


def a_clock_that_runs_backwards_is_no_matter(t):
    code, said = call(t.command(t.new()), {'LD_PRELOAD': t.library, 'FAULTS_CLOCK': 'backwards'})
    assert code == 0 and not re.search(r'-\d+(\.\d+)? s\b|-\d+ min', said), said
    assert not t.difference(t.folder)


def a_folder_that_moves_and_another_in_its_place(t):
    first = t.start()
    folder, moved = t.folder, t.folder + '-moved'
    os.rename(folder, moved)
    second = subprocess.Popen(t.command(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    t.ends(first, 2, 'was moved or removed', 'continues in a moved folder')
    t.ends(second, 0)
    assert not t.difference(folder)
    t.resumes(moved)


def a_folder_behind_a_link(t):
    real = t.new()
    os.mkdir(real + '-real')
    os.symlink(real + '-real', real)
    t.ends(t.start(real), 0)
    assert os.path.islink(real) and not t.difference(real)


def two_trainings_in_one_folder(t):
    children = [subprocess.Popen(t.command(t.folder if other else t.new()), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                for other in (False, True)]
    said = [child.communicate(timeout=120)[1].decode() for child in children]
    codes = [child.returncode for child in children]
    assert sorted(codes) == [0, 2], f'exit codes {codes}'
    refusal = said[codes.index(2)]  # the second one if the first has ended before it began
    assert 'is in use by ' in refusal or 'holds a run already' in refusal, refusal
    assert not t.difference(t.folder)


def a_damaged_checkpoint_goes_back_to_the_one_before(t):
    child = t.start(command=t.command(t.new(), '--earlier-checkpoints', '2'), folder=t.folder)
    child.kill()
    child.communicate()
    path = t.folder + '/checkpoint.safetensors'
    with open(path, 'r+b') as file:
        file.seek(-200, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-200, os.SEEK_END)
        file.write(bytes([byte ^ 4]))
    code, said = call([t.program, 'train', '--run', t.folder, '--resume'])
    assert code == 2 and 'checksum' in said, said
    offered = re.search(r'that of step (\d+) is intact, and --resume continues from it after: (mv .*)', said)
    assert offered, said
    subprocess.run(offered[2].split(), check=True)
    code, said = call([t.program, 'train', '--run', t.folder, '--resume'])
    assert code == 0 and f'resumed at step {offered[1]}' in said, said
    best = 'weights.safetensors'
    assert contents(t.folder)[best] == t.expected[best]


def permissions_that_go(t):
    how = {}
    os.mkdir(t.new())
    try:
        if os.geteuid() == 0:
            how = {'user': 65534, 'group': 65534, 'extra_groups': []}
            os.chown(t.folder, 65534, 65534)
        child = t.start(t.folder, **how)
    except OSError as error:  # a container may have no other user, or the build lie where only root may go
        raise Skipped(f'no other user can run the program here: {error}') from error
    os.chmod(t.folder, 0o555)
    t.ends(child, 2, 'Permission denied; try to change the permissions', 'this continues from the last checkpoint: ')
    os.chmod(t.folder, 0o755)
    t.resumes(t.folder)


def on_a_small_disk(t, script, kilobytes):
    """Runs a shell script where $disk is a disk of this size, $1 the program, and $2... the options of a training."""
    disk = t.new() + '-disk'
    os.mkdir(disk)
    text = f'mount -t tmpfs -o size={kilobytes}k none {disk} || exit {UNABLE}\ndisk={disk}\n' + script
    done = subprocess.run(['env', 'LC_ALL=C', 'unshare', '-m', 'bash', '-c', text, 'bash', t.program, *t.options], timeout=300,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == UNABLE or 'unshare failed' in done.stdout:
        raise Skipped('needs the right to mount')
    assert done.returncode == 0, done.stdout[-1000:]


def a_full_disk(t):
    # What a training takes, but for the last checkpoints and kept weights.
    size = sum(len(data) for data in t.expected.values())
    result = t.new() + '-result'
    on_a_small_disk(t, f'''program=$1; shift
"$program" train --run $disk/run "$@" >/dev/null 2>$disk/../said; code=$?
test $code = 2 || {{ echo "exit code $code"; tail -3 $disk/../said; exit 1; }}
grep -q 'No space left on device; try to free some space' $disk/../said || {{ cat $disk/../said; exit 1; }}
ls $disk/run | grep partial && exit 1
mount -o remount,size=100m $disk || exit 1
resume=--resume; test -e $disk/run/checkpoint.safetensors || resume=
"$program" train --run $disk/run ${{resume:-"$@"}} >/dev/null 2>$disk/../said || {{ cat $disk/../said; exit 1; }}
cp -r $disk/run {result}''', size // 1024 * 8 // 10)
    assert not t.difference(result), t.difference(result)


def a_read_only_disk(t):
    use = ('generate --prompt The --max-tokens 3' if 'language' in t.program else 'translate') + ' --run $disk/run'
    on_a_small_disk(t, f'''program=$1; shift
"$program" train --run $disk/run "$@" --steps 500 >/dev/null 2>&1 || exit 1
mount -o remount,ro $disk || exit {UNABLE}
for run in run new; do
  resume=--resume; test $run = run || resume=
  said=$("$program" train --run $disk/$run ${{resume:-"$@"}} 2>&1); code=$?
  test $code = 2 || {{ echo "exit code $code: $said"; exit 1; }}
  echo "$said" | grep -q 'Read-only file system; try another folder' || {{ echo "$said"; exit 1; }}
done
said=$(echo the cat | "$program" {use} 2>&1) || {{ echo "$said"; exit 1; }}''', 100 * 1024)


def two_exports_to_one_folder(t):
    if 'language' not in t.program:
        raise Skipped('train_translation exports nothing')
    must(t.command(t.new(), '--steps', '500'))
    output = t.folder + '-exported'
    children = [subprocess.Popen([t.program, 'export', '--run', t.folder, '--output', output], stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE) for _ in range(4)]
    said = [child.communicate(timeout=60)[1].decode() for child in children]
    codes = [child.returncode for child in children]
    assert sorted(codes) == [0, 2, 2, 2], f'{codes} {said}'
    for code, text in zip(codes, said):
        assert code == 0 or 'is being made by another process' in text or 'already exists' in text, text
    must([t.program, 'generate', '--run', output, '--prompt', 'The', '--max-tokens', '3'])
    assert not os.path.exists(output + '.partial')


QUICK = [a_second_signal_leaves_at_once, a_closed_terminal_saves, a_log_that_nobody_reads_any_more_saves,
         a_folder_that_moves_and_another_in_its_place, two_trainings_in_one_folder,
         a_damaged_checkpoint_goes_back_to_the_one_before, permissions_that_go]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('library')
    parser.add_argument('language')
    parser.add_argument('translation')
    parser.add_argument('--only', default='')
    parser.add_argument('--quick', action='store_true')
    options = parser.parse_args()
    checks = [signals, a_second_signal_leaves_at_once, ignored_signals_stay_ignored, a_closed_terminal_saves,
              a_log_that_nobody_reads_any_more_saves, a_stop_does_not_count_in_times,
              a_clock_that_runs_backwards_is_no_matter, a_folder_that_moves_and_another_in_its_place,
              a_folder_behind_a_link, two_trainings_in_one_folder,
              a_damaged_checkpoint_goes_back_to_the_one_before, permissions_that_go, a_full_disk, a_read_only_disk,
              two_exports_to_one_folder]
    failed = 0
    work = tempfile.mkdtemp()
    os.chmod(work, 0o755)
    try:
        with open(work + '/text', 'w') as file:
            file.write(TEXT)
        programs = [(options.language, [*LANGUAGE, '--corpus', work + '/text']), (options.translation, TRANSLATION)]
        for program, sizes in programs[:1] if options.quick else programs:
            runs = Trainings(options.library, program, without_loop(sizes), work).set_up()
            for check in checks:
                if options.only not in check.__name__ or options.quick and check not in QUICK:
                    continue
                name = f'{os.path.basename(program)}: {check.__name__.replace("_", " ")}'
                begun = time.monotonic()
                try:
                    check(runs)
                    print(f'{name}: passed ({time.monotonic() - begun:.1f} s)', flush=True)
                except Skipped as reason:
                    print(f'{name}: skipped: {reason}', flush=True)
                except (AssertionError, RuntimeError, subprocess.TimeoutExpired) as error:
                    failed += 1
                    print(f'FAILED: {name}: {error}', flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f'{failed} failed')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
