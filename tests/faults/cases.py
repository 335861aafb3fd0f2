"""The commands that the tests of crashes run: tiny runs, a preparation and an export, and how each resumes after a fault."""
import os
import re
import subprocess
import tempfile

TEXT = ''.join(f'The {i}th cat sleeps on mat {i * 7 % 31}, and the dog does not.\n' for i in range(60))
LOOP = ['--steps', '6', '--warmup', '1', '--checkpoint-every', '2', '--validate-every', '3', '--samples', '0',
        '--log-every', '2', '--threads', '1', '--keep-checkpoints', '1', '--earlier-checkpoints', '1', '--dropout', '0.1']
LANGUAGE = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '16', '--batch', '2', '--validation-fraction', '0.2',
            '--validation-kind', 'estimate', '--validation-batches', '1', *LOOP]
TRANSLATION = ['--grammar-pairs', '30', '--held-out', '4', '--tokenizer', 'word', '--width', '16', '--heads', '2',
               '--encoder-layers', '1', '--decoder-layers', '1', '--feed-forward', '16', '--batch-tokens', '64', *LOOP]


def call(command, environment=None, timeout=120):
    """The exit code (minus the signal) and the text on standard error."""
    done = subprocess.run(command, env={**os.environ, **(environment or {})}, timeout=timeout, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors='replace')
    return done.returncode, done.stderr


def must(command):
    code, said = call(command)
    if code != 0:
        raise RuntimeError(f'{" ".join(command)}: exit code {code}: {said}')


def contents(folder):
    """The bytes of every file below a folder by name; of metrics.jsonl only the losses, because it has times too,
    as have reports."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            if name in ('training.lock', 'report.json', 'report.html'):
                continue
            with open(path, 'rb') as file:
                data = file.read()
            if name == 'metrics.jsonl':
                data = b'\n'.join(re.findall(rb'"step":\d+,"[a-z]*_loss":[0-9.e-]*', data))
            found[os.path.relpath(path, folder)] = data
    return found


def differences(folder, expected):
    """The names of the files whose contents are not those expected."""
    found = contents(folder)
    return sorted(set(found) ^ set(expected)) or [name for name in found if found[name] != expected[name]]


class Case:
    """A command that writes the folder `result`. `prepares` trains the run inputs/run, which it reads."""

    def __init__(self, name, program, command, trains, prepares=None):
        self.name, self.program, self.command_of, self.trains, self.prepares = name, program, command, trains, prepares

    def set_up(self, work):
        self.inputs = os.path.join(work, 'inputs-' + self.name)
        os.makedirs(self.inputs)
        with open(os.path.join(self.inputs, 'text'), 'w') as file:
            file.write(TEXT)
        if self.prepares:
            must([self.program, 'train', '--run', self.inputs + '/run', *self.prepares(self.inputs)])
        whole = os.path.join(work, 'whole-' + self.name)
        os.makedirs(whole)
        must(self.command(whole))
        self.expected = contents(whole)

    def command(self, place):
        return [self.program, *self.command_of(self.inputs, place + '/result')]

    def goes_on(self, place):
        """The command that a user would give next; none if the result is there."""
        result = place + '/result'
        if self.trains and os.path.exists(result + '/checkpoint.safetensors'):
            return [self.program, 'train', '--run', result, '--resume']
        return None if not self.trains and os.path.exists(result) else self.command(place)

    def difference(self, place):
        """The difference between the result and an undisturbed one; '' if none."""
        names = differences(place, self.expected)
        return '' if not names else 'differs in ' + ', '.join(names)

    def recovered(self, place):
        """Continues as a user would; returns the failure, or ''."""
        command = self.goes_on(place)
        if command is not None:
            code, said = call(command)
            if code != 0:
                return f'going on: exit code {code}: {said.strip()[-300:]}'
        return self.difference(place)


def all_cases(language, translation):
    return [
        Case('train_language_model', language,
             lambda inputs, result: ['train', '--run', result, '--corpus', inputs + '/text', *LANGUAGE], True),
        Case('train_translation', translation, lambda _, result: ['train', '--run', result, *TRANSLATION], True),
        Case('prepare', language, lambda inputs, result: ['prepare', '--corpus', inputs + '/text', '--tokenizer', 'byte',
                                                          '--validation-fraction', '0.2', '--output', result], False),
        Case('export', language, lambda inputs, result: ['export', '--run', inputs + '/run', '--output', result], False,
             lambda inputs: ['--corpus', inputs + '/text', *LANGUAGE]),
        Case('export_marian', translation, lambda inputs, result: ['export', '--run', inputs + '/run', '--output', result,
                                                                   '--format', 'marian-npz'], False,
             lambda _: [*TRANSLATION[:4], *TRANSLATION[6:], '--preset', 'translation-marian']),
    ]


def new_place(work):
    """An empty folder for one attempt."""
    return tempfile.TemporaryDirectory(dir=work, ignore_cleanup_errors=True)
