"""What the benches in Python share: options, and programs that are run, or that answer a line with a line."""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MOST_SECONDS = 300  # of one process; compiling takes a minute or two


def refuse(message):
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def skip(message):
    print(f"{pathlib.Path(sys.argv[0]).name}: skipped: {message}")
    sys.exit(77)


def positive(text):
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return value


def require_device(text):
    if not re.fullmatch(r"cpu|cuda(:\d{1,3})?", text):
        refuse(f"--device must be cpu, cuda or cuda:N; got {text}")


def ratio_of(ours, theirs):
    """The median of the rounds' ratios of times: above 1, they take longer."""
    return f"{statistics.median(b['ms'] / a['ms'] for a, b in zip(ours, theirs)):.2f}x"


def bench_of(build):
    """The bench in a build folder."""
    path = build / "tests/bench"
    if not path.is_file():
        refuse(f"there is no {path}; build the target bench, or name the build folder with --build")
    return path


def reason_of(errors, code):
    """The most telling line of a program's error output: its last one, or its last that begins like an exception."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    exceptions = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (exceptions or lines or [f"exit code {code}"])[-1][:300]


def try_run(command, seconds=MOST_SECONDS):
    """Its output, or the reason why there is none."""
    try:
        done = subprocess.run([str(part) for part in command], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                              timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, f"not done within {seconds} s"
    except OSError as error:
        return None, f"{error.filename}: {error.strerror}"
    return (done.stdout, None) if done.returncode == 0 else (None, reason_of(done.stderr, done.returncode))


class Contestant:
    """A program that answers a line with a line of JSON. One that fails, for want of memory say, answers with its error instead of a
    time, and is started again for the next line."""

    MOST_FAILURES = 5  # in a row, then it is left out

    def __init__(self, command, **environment):
        self.command, self.environment, self.process, self.failures = command, {**os.environ, **environment}, None, 0

    def __call__(self, case):
        if self.failures == self.MOST_FAILURES:
            return {"ms": None, "error": "left out, having failed too often"}
        if self.process is None:
            self.errors = tempfile.TemporaryFile("w+")
            try:
                self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                                env=self.environment)
            except OSError as error:
                refuse(f"{self.command[0]} cannot be run: {error.strerror}")
        try:
            self.process.stdin.write(case + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer:
            self.failures = 0
            return json.loads(answer)
        code, self.process = self.process.wait(), None
        self.failures += 1
        self.errors.seek(0)
        return {"ms": None, "error": reason_of(self.errors.read(), code)}

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
