#!/usr/bin/env python3
"""Checks the drawing, text and width of reports of runs in headless Chromium. Without Chromium it exits with 77.
Usage: report_page.py TRAIN_LANGUAGE_MODEL"""
import html
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

program = os.path.abspath(sys.argv[1])
chromium = shutil.which('chromium')
if chromium is None:
    print('skipped: there is no chromium')
    sys.exit(77)

# Runs in each page when that has drawn itself, and tells its frame's number what it has found.
PROBE = r'''
const found = { error: document.documentElement.dataset.error || "", drawn: document.documentElement.dataset.drawn || "" };
found.points = Object.fromEntries(charts.map((chart) => [chart.curves[0],
  [...chart.svg.querySelectorAll("path.curve")].map((path) => +path.dataset.points)]));
const loss = charts[0];
const press = (key) => loss.svg.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
press("Home"); found.first = loss.reading.textContent;
press("ArrowRight"); found.second = loss.reading.textContent;
press("End"); found.last = loss.reading.textContent;
const bounds = loss.svg.getBoundingClientRect(), shrunk = bounds.width / loss.svg.viewBox.baseVal.width;
if (loss.xs.length > 0) loss.svg.dispatchEvent(new PointerEvent("pointermove",
  { clientX: bounds.left + loss.x(loss.xs[Math.min(2, loss.xs.length - 1)]) * shrunk, clientY: bounds.top + 50 }));
found.pointed = loss.reading.textContent;
found.missing = [...document.querySelectorAll("h1, h2, h3, p, dd, option, figure, .heads, #summary")]
  .map((e) => e.outerHTML.match(/.{0,30}(NaN|undefined|Infinity).{0,30}/)?.[0]).filter((text) => text);
found.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
found.sticking = [...document.querySelectorAll("body *")].filter((e) => !e.closest("svg") || e.localName === "svg")
  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.localName);
const inside = (text) => { const a = text.getBoundingClientRect(), b = text.ownerSVGElement.getBoundingClientRect();
  return a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1; };
found.cut = [...document.querySelectorAll("#charts text")].filter((text) => !inside(text)).map((text) => text.textContent);
found.unlabelled = [...document.querySelectorAll("svg, select, input")]
  .filter((e) => !e.getAttribute("aria-label") && !e.closest("label")).length;
found.samples = document.querySelectorAll("#samples pre").length;
found.sample = document.querySelector("#samples pre")?.textContent || "";
found.heads = document.querySelectorAll(".heads svg").length;
found.marks = [document.querySelectorAll(".bad").length, document.querySelectorAll(".resumed").length];
const axis = document.querySelector("input[value=time]");
found.times = !axis.disabled;
if (found.times) axis.click();
press("End"); found.timed = loss.reading.textContent;
document.getElementById("logarithmic").click();
found.logarithmic = [...loss.svg.querySelectorAll("path.curve")].map((path) => +path.dataset.points);
document.querySelector("#runs input").click();
found.left = +loss.figure.dataset.points;
found.error = document.documentElement.dataset.error || "";
const result = parent.document.createElement("pre");
result.className = "result";
result.textContent = JSON.stringify({ number: NUMBER, found });
parent.document.body.append(result);
'''

failures = []


def check(name, holds, got=''):
    if not holds:
        failures.append(name)
        print(f'FAILED: {name}: {got}')


def fabricated(folder, lines, report=None):
    """The parts of a run folder that reports read."""
    os.makedirs(folder)
    with open(folder + '/config.json', 'w') as file:
        json.dump({'model': 'decoder_only', 'training': {'steps': 10}}, file)
    with open(folder + '/metrics.jsonl', 'w') as file:
        file.writelines(json.dumps(line) + '\n' for line in lines)
    with open(folder + '/report.json', 'w') as file:
        json.dump(report or {}, file)
    return folder


def looked_at(pages, work):
    """The findings of the probe in each page, in a frame of the given width."""
    frames = ''
    for number, (page, width) in enumerate(pages):
        with open(page, encoding='utf-8') as file:
            text = file.read()
        text = text.replace('</body>', '<script>' + PROBE.replace('NUMBER', str(number)) + '</script></body>')
        frames += f'<iframe width="{width}" height="900" style="border:0" srcdoc="{html.escape(text)}"></iframe>\n'
    with open(work + '/frames.html', 'w', encoding='utf-8') as file:
        file.write(f'<!DOCTYPE html><meta charset="utf-8"><body>{frames}</body>')
    dom = subprocess.run([chromium, '--headless', '--no-sandbox', '--disable-gpu', '--user-data-dir=' + work + '/profile',
                          '--dump-dom', 'file://' + work + '/frames.html'], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         timeout=60, check=True, text=True).stdout
    results = [json.loads(html.unescape(text)) for text in re.findall(r'<pre class="result">(.*?)</pre>', dom, re.S)]
    return {result['number']: result['found'] for result in results}


def values(folder, field):
    with open(folder + '/metrics.jsonl') as file:
        return [line for line in map(json.loads, file) if isinstance(line.get(field), (int, float))]


def main(work):
    tiny = ['--layers', '2', '--width', '32', '--heads', '2', '--context', '32', '--batch', '4', '--validation-batches', '1',
            '--validation-fraction', '0.01', '--validate-every', '10', '--log-every', '2', '--samples', '1', '--threads', '1']
    first, second = work + '/first', work + '/second'

    def call(*arguments):
        subprocess.run([program, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    call('train', '--run', first, *tiny, '--steps', '20')
    call('train', '--run', first, '--resume', '--steps', '30')
    call('train', '--run', second, *tiny, '--steps', '20', '--learning-rate', '1e-3')
    call('report', first, second, '--output', work + '/two.html')

    hostile = '</script><script>document.title = "broken"</script><b>&amp;'
    strange = fabricated(work + '/strange', [
        {'step': 1, 'train_loss': 2.0, 'tokens_per_second': 5, 'learning_rate': 0.0},
        {'step': 2, 'train_loss': None, 'gradient_norm': None},
        {'step': 2, 'bad_step': 'the loss is nan ' + hostile, 'update': 'skipped'},
        {'step': 3, 'train_loss': 1.5}, {'step': 4, 'validation_loss': 1.25, 'samples': [hostile]}],
        {'sessions': [{'from_step': 0, 'command': hostile}, {'from_step': 3}]})
    one = fabricated(work + '/one', [{'step': 1, 'train_loss': 2.0}])
    none = fabricated(work + '/none', [])
    huge = fabricated(work + '/huge', [
        {'step': i, 'train_loss': 2 + math.sin(i / 1000) + (i == 12345) * 50, 'learning_rate': 1e-3} for i in range(1, 30001)])
    near = fabricated(work + '/near', [{'step': 1, 'train_loss': 0.3}, {'step': 2, 'train_loss': 0.1 * 3}])
    for folder in (strange, one, none, huge, near):
        call('report', folder)
    pages = [(first + '/report.html', 360), (work + '/two.html', 1400), (work + '/two.html', 360), (strange + '/report.html', 360),
             (one + '/report.html', 800), (none + '/report.html', 360), (huge + '/report.html', 800),
             (near + '/report.html', 360)]
    found = looked_at(pages, work)
    for number, (page, width) in enumerate(pages):
        name = f'{page[len(work) + 1:]} at {width} px'
        at = found.get(number)
        check(f'{name}: its script ran to the end', at is not None and at['drawn'] == 'yes', at)
        if at is None:
            continue
        check(f'{name}: without an error', at['error'] == '', at['error'])
        check(f'{name}: nothing is wider than the page', at['wide'] <= 0 and not at['sticking'], (at['wide'], at['sticking']))
        check(f'{name}: no label is cut', not at['cut'], at['cut'])
        check(f'{name}: what has a picture or takes input has a name', at['unlabelled'] == 0)
        check(f'{name}: no number is missing', not at['missing'], at['missing'])
    if failures:
        return

    losses, validations = values(first, 'train_loss'), values(first, 'validation_loss')
    check('as many points as metrics', found[0]['points']['train_loss'] == [len(losses), len(validations)], found[0]['points'])
    for field in ('learning_rate', 'gradient_norm', 'tokens_per_second'):
        check(f'as many points of {field} as metrics', found[0]['points'][field] == [len(losses)], found[0]['points'])
    both = [len(losses), len(validations), len(values(second, 'train_loss')), len(values(second, 'validation_loss'))]
    check('the curves of two runs', found[1]['points']['train_loss'] == both, found[1]['points'])

    def reads(text, line, field='train_loss'):
        numbers = [float(number) for number in re.findall(r'training ([0-9.]+)', text)]
        return text.startswith(f'step {line["step"]};') and numbers[:1] == [float(f'{line[field]:.5g}')]
    for text, line in (('first', losses[0]), ('second', losses[1]), ('last', losses[-1]), ('pointed', losses[2])):
        check(f'the {text} reading is the number in the metrics', reads(found[0][text], line), (found[0][text], line))
    validation = format(validations[-1]['validation_loss'], '.5g')
    check('a validation is read too', 'validation ' + validation in found[0]['last'], found[0]['last'])
    check('against time', found[0]['times'] and re.match(r'[0-9.]+ (s|min)', found[0]['timed']), found[0]['timed'])
    check('a logarithmic scale keeps the points', found[0]['logarithmic'] == found[0]['points']['train_loss'])
    check('a run that is hidden leaves the other', found[1]['left'] == sum(both[2:]), found[1]['left'])
    check('samples of both', found[1]['samples'] == 2 and '[' in found[1]['sample'], found[1]['sample'])
    check('attention of each head', found[0]['heads'] == 2 and found[1]['heads'] == 4, found[1]['heads'])
    check('where it was resumed', found[0]['marks'] == [0, 1], found[0]['marks'])
    check('a text that looks like markup stays a text', found[3]['sample'] == hostile, found[3]['sample'])
    check('bad steps and gaps', found[3]['marks'] == [1, 1] and found[3]['points']['train_loss'] == [2, 1], found[3])
    check('one point', found[4]['points']['train_loss'] == [1], found[4])
    check('no point', found[5]['points']['train_loss'] == [], found[5])
    check('numbers that are equal up to rounding', found[7]['points']['train_loss'] == [2], found[7])
    most = found[6]['points']['train_loss'][0]
    check('a huge run is thinned out', 1000 < most <= 2000, most)
    check('its page is small', os.path.getsize(huge + '/report.html') < 400_000, os.path.getsize(huge + '/report.html'))


with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Chromium's last processes may still write there
    main(folder)
print(f'report_page: {len(failures)} failures')
sys.exit(1 if failures else 0)
