#include <tapeformer/examples/report/report_page.h>

namespace tapeformer {

const char* const kReportPageText = R"page(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Training report</title>
<style>
/* style */
</style>
</head>
<body>
<header>
<h1>Training report</h1>
<p id="summary"></p>
</header>
<main>
<noscript><p>This page draws its curves with a script, which this browser does not run.</p></noscript>
<form id="controls" aria-label="What the curves show" onsubmit="return false">
<fieldset id="axes"><legend>Against</legend></fieldset>
<fieldset><legend>Scale of loss and norm</legend>
<label><input type="checkbox" id="logarithmic"> logarithmic</label></fieldset>
<fieldset id="runs"><legend>Runs</legend></fieldset>
</form>
<p class="hint">Point at a curve to read it, or select one with Tab: the arrow keys move the reading point,
with Shift by ten, Home and End go to the ends.</p>
<section id="charts" aria-label="Curves"></section>
<section id="samples" aria-labelledby="samples-title"><h2 id="samples-title">Samples</h2>
<div class="columns"></div></section>
<section id="attention" aria-labelledby="attention-title"><h2 id="attention-title">Attention</h2>
<p class="hint">A row is a token that attends, a column a token that it attends to; the stronger the colour
of the cell, the larger the weight. Arrow keys move from cell to cell.</p><div class="blocks"></div></section>
<section id="facts" aria-labelledby="facts-title"><h2 id="facts-title">Model and machine</h2>
<div class="columns"></div></section>
</main>
<script type="application/json" id="data">/* data */</script>
<script>
/* script */
</script>
</body>
</html>
)page";

const char* const kReportStyleText = R"style(
:root {
  --paper: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --panel: #f6f8fa; --bad: #b3261e;
  --run-0: #0b5cad; --run-1: #b04400; --run-2: #1a7f37; --run-3: #8a3ffc; --run-4: #a8005c; --run-5: #5c5400;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #0d1117; --ink: #e6edf3; --soft: #9da7b3; --line: #3d444d; --panel: #161b22; --bad: #ff8f85;
    --run-0: #6cb6ff; --run-1: #ffa657; --run-2: #56d364; --run-3: #c8a6ff; --run-4: #ff8ac4;
    --run-5: #d8cb4a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 1500px; padding: 12px 16px 48px; background: var(--paper); color: var(--ink);
  font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.5rem; margin: 8px 0 4px; }
h2 { font-size: 1.2rem; margin: 32px 0 8px; border-bottom: 1px solid var(--line); padding-bottom: 4px; }
h3 { font-size: 1rem; margin: 0 0 6px; }
#summary, .hint { color: var(--soft); margin: 4px 0 12px; }
form { display: flex; flex-wrap: wrap; gap: 8px; margin-bottom: 8px; }
fieldset {
  border: 1px solid var(--line); border-radius: 6px; padding: 2px 10px 6px; margin: 0; min-width: 0;
}
legend { color: var(--soft); font-size: 0.85rem; }
fieldset label { display: inline-flex; align-items: center; gap: 4px; margin-right: 12px; padding: 3px 0; }
.swatch { display: inline-block; width: 14px; height: 14px; border-radius: 3px; flex: none; }
#charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr)); gap: 16px; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 16px; }
figure, .card {
  margin: 0; min-width: 0; border: 1px solid var(--line); border-radius: 8px; padding: 10px;
  background: var(--panel);
}
figcaption { font-weight: 600; }
figcaption span { font-weight: 400; color: var(--soft); }
svg { display: block; width: 100%; height: auto; touch-action: pan-y; }
svg text { fill: var(--soft); font-size: 12px; }
:focus-visible { outline: 2px solid var(--run-0); outline-offset: 2px; }
.grid { stroke: var(--line); stroke-width: 1; }
.axis { stroke: var(--soft); stroke-width: 1; fill: none; }
.curve { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.validation_loss { stroke-dasharray: 6 4; }
.resumed { stroke: var(--soft); stroke-dasharray: 2 4; }
.bad { fill: var(--bad); }
.reader { stroke: var(--ink); stroke-width: 1; }
.reading { margin: 4px 0 0; min-height: 2.9em; font-variant-numeric: tabular-nums; font-size: 0.92rem; }
.reading b { font-weight: 600; }
pre {
  white-space: pre-wrap; margin: 6px 0; padding: 8px; border-radius: 6px; background: var(--paper);
  border: 1px solid var(--line); font: 13px/1.4 "DejaVu Sans Mono", monospace;
}
input[type="range"] { width: 100%; }
.blocks { display: grid; gap: 16px; }
.heads { display: flex; flex-wrap: wrap; gap: 12px; }
.heads svg { width: auto; max-width: 100%; }
.heads text { font-size: 10px; font-family: "DejaVu Sans Mono", monospace; }
.heads .title { font-size: 12px; font-family: inherit; fill: var(--ink); }
.frame { fill: none; stroke: var(--line); }
.chosen { fill: none; stroke: var(--bad); stroke-width: 1.5; }
select {
  font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line); border-radius: 4px;
  padding: 2px 6px;
}
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: 2px 12px; margin: 0 0 10px; }
dt { color: var(--soft); }
dd { margin: 0; }
@media (max-width: 480px) {
  body { padding: 8px 10px 32px; }
  dl { grid-template-columns: minmax(0, 1fr); }
  dd { margin-bottom: 4px; }
}
)style";

}  // namespace tapeformer
