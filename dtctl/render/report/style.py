"""The page's only style sheet: light and dark, narrow and wide, on paper. It fetches nothing."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f4f6f8; --line: #c9d1d9; --text: #1b2026; --soft: #4d5762; --link: #0550ae;
  --good: #1a7f37; --bad: #b42318; --warn: #8a5a00; --wait: #6e7781; --start: #0969da; --lost: #7d3fc8;
  --again: #b35900; --end: #2c7a7b;
  --c0: #0550ae; --c1: #b35900; --c2: #1a7f37; --c3: #7d3fc8; --c4: #b42318; --c5: #2c7a7b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #11161c; --panel: #1a2129; --line: #3a444f; --text: #e7edf3; --soft: #a8b3be; --link: #79b8ff;
    --good: #4ac26b; --bad: #ff7b72; --warn: #e3b341; --wait: #8b949e; --start: #58a6ff; --lost: #c39bf5;
    --again: #f0a15c; --end: #5fc4c0;
    --c0: #79b8ff; --c1: #f0a15c; --c2: #4ac26b; --c3: #c39bf5; --c4: #ff7b72; --c5: #5fc4c0;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body {
  margin: 0 auto; padding: 1rem clamp(0.75rem, 3vw, 2.5rem) 3rem; max-width: 84rem;
  background: var(--page); color: var(--text); overflow-wrap: anywhere;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0.5rem 0 0.25rem; }
h2 { font-size: 1.25rem; margin: 2.25rem 0 0.5rem; padding-top: 0.5rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.25rem 0 0.25rem; }
p, ul { margin: 0.4rem 0; }
p, li { max-width: 75ch; }
a { color: var(--link); }
a:focus-visible, [tabindex]:focus-visible, summary:focus-visible {
  outline: 3px solid var(--start); outline-offset: 2px;
}
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: 0.5rem; background: var(--page); padding: 0.5rem; z-index: 2; }
nav ul { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; padding: 0; list-style: none; }
nav a { display: inline-block; padding: 0.25rem 0; }
.soft, figcaption, .axis { color: var(--soft); }
.small { font-size: 0.875rem; }
.outcome { font-weight: 700; }
.Succeeded, .Running, .s-running, .s-succeeded { color: var(--good); }
.Failed, .s-failed { color: var(--bad); }
.Restarting, .s-backoff, .s-stalled { color: var(--warn); }
.s-lost { color: var(--lost); }
code, pre, .mono { font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: 0.875rem; }
pre {
  background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 0.75rem; overflow-x: auto;
}
.cause { border-left: 4px solid var(--bad); padding-left: 0.75rem; }
dl.facts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.75rem; margin: 1rem 0;
}
dl.facts div { background: var(--panel); border: 1px solid var(--line); border-radius: 4px; padding: 0.5rem 0.75rem; }
dl.facts dt { color: var(--soft); font-size: 0.875rem; }
dl.facts dd { margin: 0; font-size: 1.1rem; font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
caption { text-align: left; color: var(--soft); padding: 0.25rem 0; }
th, td {
  text-align: left; vertical-align: top; padding: 0.3rem 0.75rem 0.3rem 0; border-bottom: 1px solid var(--line);
}
th { font-weight: 600; }
thead th { white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.nowrap, th.nowrap { white-space: nowrap; }
td, th { overflow-wrap: normal; }
tbody th { min-width: 7rem; overflow-wrap: anywhere; }
td.wide { min-width: 14rem; overflow-wrap: anywhere; }
svg { display: block; width: 100%; }
.bar svg { height: 1.5rem; background: var(--panel); border-radius: 3px; }
th svg { display: inline-block; width: 0.9rem; height: 0.9rem; vertical-align: -0.1rem; }
.lane {
  display: grid; grid-template-columns: minmax(5rem, 12rem) 1fr; gap: 0.75rem; align-items: center; margin: 2px 0;
}
.lane .name { text-align: right; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; font-size: 0.875rem; }
.lane svg { height: 1.1rem; background: var(--panel); border-radius: 2px; }
.axis { display: flex; justify-content: space-between; font-size: 0.8rem; gap: 0.5rem; }
@media (max-width: 30rem) {
  .lane { grid-template-columns: 1fr; gap: 0; }
  .lane .name { text-align: left; }
  .lane > span:empty { display: none; }
}
.legend { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; padding: 0; list-style: none; font-size: 0.875rem; }
.legend svg { display: inline-block; width: 0.9rem; height: 0.9rem; vertical-align: -0.1rem; margin-right: 0.35rem; }
.f-kept, .f-running, .f-succeeded { fill: var(--good); }
.f-start, .f-starting { fill: var(--start); }
.f-wait, .f-pending { fill: var(--wait); }
.f-again, .f-stalled { fill: var(--again); }
.f-backoff, .f-stall { fill: var(--warn); }
.f-away, .f-lost { fill: var(--lost); }
.f-end, .f-stopped { fill: var(--end); }
.f-unsaved, .f-failed { fill: var(--bad); }
.cut { stroke: var(--page); stroke-width: 2; vector-effect: non-scaling-stroke; }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 24rem), 1fr)); gap: 1.25rem; }
figure { margin: 0; min-width: 0; }
figure .plot { display: grid; grid-template-columns: auto 1fr; gap: 0 0.5rem; }
figure .plot .y { display: flex; flex-direction: column; justify-content: space-between; text-align: right; }
figure .plot .x { grid-column: 2; }
figure svg.chart { height: 11rem; background: var(--panel); border: 1px solid var(--line); border-radius: 2px; }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.k { fill: none; stroke-width: 2; vector-effect: non-scaling-stroke; stroke-linejoin: round; stroke-linecap: round; }
.k0 { stroke: var(--c0); }
.k1 { stroke: var(--c1); stroke-dasharray: 7 3; }
.k2 { stroke: var(--c2); stroke-dasharray: 2 3; }
.k3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; }
.k4 { stroke: var(--c4); stroke-dasharray: 4 2; }
.k5 { stroke: var(--c5); stroke-dasharray: 12 4; }
summary { cursor: pointer; padding: 0.25rem 0; }
footer { margin-top: 3rem; color: var(--soft); font-size: 0.875rem; }
@media print {
  body { max-width: none; } nav, .skip { display: none; } .scroll { overflow: visible; } h2 { break-after: avoid; }
  figure, tr, .lane { break-inside: avoid; }
}
"""
