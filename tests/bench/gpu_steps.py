"""Training steps, of compare_with_pytorch: rounds in turn, and on a GPU the rates of the card and the table of them."""

import json
import statistics
import sys

from programs import HERE, MOST_SECONDS, ratio_of, refuse, try_run

WORKLOADS = ["gpt2-124m-h200", "babygpt", "chargpt", "translate", "translate-base", "gpt2-124m-1k"]
PRECISIONS = ["bf16", "tf32"]
# Dense TFLOP/s of the data sheets; of cards whose names begin alike, the longer name first.
DATASHEETS = {"H200": {"bf16": 989, "tf32": 494, "f32": 67}, "H100 PCIe": {"bf16": 756, "tf32": 378, "f32": 51},
              "H100 NVL": {"bf16": 835, "tf32": 417, "f32": 60}, "H100": {"bf16": 989, "tf32": 494, "f32": 67},
              "A100": {"bf16": 312, "tf32": 156, "f32": 19.5}}
BYTES_A_PARAMETER = 16  # value, gradient, two moments
MIB = 2**20
LARGE = 8192  # rows and columns of a product that shows what the card can do
OURS, QUEUED, EAGER, COMPILED, RECORDED = "ours", "ours without graphs", "PyTorch", "compiled", "compiled with graphs"


def record_of(answer):
    """The line of JSON in a program's output."""
    return next(json.loads(line) for line in answer.splitlines() if line.startswith("{"))


def rates_of(contest, arguments):
    """The card's rates: TFLOP/s of a large product by precision, through us or PyTorch, whichever is faster, and GB/s of a copy."""
    place = ["--device", contest.device, "--seconds", 0, f"linear_forward {LARGE} {LARGE} {LARGE}", "--dtype"]
    rates = {}
    for precision in arguments.precision:
        for who, program in (("ours", [arguments.build / "tests/bench", "ops"]), ("PyTorch's", [contest.python, HERE / "torch_ops.py"])):
            answer, error = try_run([*program, *place, precision])
            line = {"ms": None} if error else record_of(answer)
            if line["ms"] is None:
                print(f"rate in {precision}, {who}: not measured: {error or line['error']}", file=sys.stderr)
                continue
            # Ours measures it by itself, with more care than a single operation.
            rate = 1e-3 * line["_matrix_gflop_per_s"] if who == "ours" else 2e-9 * LARGE**3 / line["ms"]
            print(f"rate in {precision}, {who}: {rate:.0f} TFLOP/s", file=sys.stderr)
            rates[precision] = max(rate, rates.get(precision, 0))
            if "_copy_gb_per_s" in line:
                rates["copy, GB/s"] = line["_copy_gb_per_s"]
    return rates


def floor_ms(line, gflop_per_s, gb_per_s):
    """The least time of our step, phase by phase, at these rates: floor.h says what is counted."""
    return sum(max(1e3 * work["gflop"] / gflop_per_s, work["mb"] / gb_per_s) for work in line["work"].values())


def rounds_of(contest, arguments, workload, settings, record):
    """The runs of a workload by contestant, or the error of one that failed."""
    on_gpu = contest.device != "cpu"
    contestants = [OURS, *([QUEUED] if on_gpu else []), *([] if arguments.no_eager else [EAGER]),
                   *([] if arguments.no_compile else [COMPILED]), *([RECORDED] if arguments.graphs else [])]
    runs, errors = {who: [] for who in contestants}, {}
    for _ in range(arguments.rounds):
        for who in contestants:
            if who in errors:
                continue
            answer, error = try_run(contest.command(who, workload, settings), MOST_SECONDS if on_gpu else None)
            if error:
                errors[who] = error
                print(f"{workload} {contest.precision} {who}: not measured: {error}", file=sys.stderr, flush=True)
                continue
            line = {**record_of(answer), "who": who}
            record(run=line)
            runs[who].append(line)
            print(f"{workload} {contest.precision} {who}: {line['ms']} ms", file=sys.stderr, flush=True)
            if runs[OURS] and line["params"] != runs[OURS][0]["params"]:
                refuse(f"{workload} has {runs[OURS][0]['params']} parameters, and PyTorch's {line['params']}")
    return runs, errors


def middle(lines, key):
    return statistics.median(line[key] for line in lines)


def row_of(workload, precision, runs, errors, rates):
    row = {"workload": workload, "precision": precision}
    for who in runs:
        row |= {f"{who}, ms": round(middle(runs[who], "ms"), 3) if runs[who] else "not measured",
                f"{who}, tokens/s": round(middle(runs[who], "tokens_per_s")) if runs[who] else None}
    for who in [who for who in runs if who != OURS]:
        row[f"{who} to ours"] = ratio_of(runs[OURS], runs[who]) if runs[OURS] and runs[who] else None
    if runs[OURS]:
        rate = 1e-3 * middle(runs[OURS], "gflop_per_s")
        datasheet = next((all_rates for card, all_rates in DATASHEETS.items() if card in runs[OURS][0].get("gpu", "")), {})
        row["graph"] = runs[OURS][0].get("no_graph") or f"{runs[OURS][0]['graph_nodes']} nodes"
        row["TFLOP/s"] = round(rate, 2)
        row["of the measured rate"] = f"{100 * rate / rates[precision]:.1f} %" if precision in rates else None
        if precision in rates and "copy, GB/s" in rates:
            floor = floor_ms(runs[OURS][0], 1e3 * rates[precision], rates["copy, GB/s"])
            row |= {"floor, ms": round(floor, 3), "of speed of light": f"{100 * floor / row[f'{OURS}, ms']:.1f} %"}
        row["of the datasheet's"] = f"{100 * rate / datasheet[precision]:.1f} %" if precision in datasheet else None
    beyond = {}
    for who, lines in runs.items():
        if lines:
            peak = max(line["peak_device_mib"] for line in lines)
            beyond[who] = peak - BYTES_A_PARAMETER * lines[0]["params"] / MIB
            row |= {f"{who}, MiB": peak, f"{who} beyond, MiB": round(beyond[who])}
    for who in (EAGER, COMPILED, RECORDED):
        if OURS in beyond and beyond.get(who, 0) > 0:
            row[f"our memory beyond to {who}'s"] = f"{beyond[OURS] / beyond[who]:.2f}x"
    return row | {"not measured": "; ".join(f"{who}: {error}" for who, error in errors.items()) or None}
