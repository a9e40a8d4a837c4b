"""What the dashboard's page has besides the report's."""

from dtctl.render.report.style import STYLE as OF_REPORT

STYLE = (
    OF_REPORT
    + """
.answer { font-size: 1.15rem; margin: 0.25rem 0; font-variant-numeric: tabular-nums; max-width: none; }
.unseen {
  position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap;
}
.bar-of-state { display: flex; flex-wrap: wrap; align-items: center; gap: 0.25rem 1rem; }
#link { margin: 0; }
#link::before {
  content: ""; display: inline-block; width: 0.6rem; height: 0.6rem; border-radius: 50%; margin-right: 0.5rem;
  background: var(--wait);
}
#link[data-state="live"]::before { background: var(--good); }
#link[data-state="lost"]::before, #link[data-state="over"]::before { background: var(--bad); }
#link[data-state="held"]::before { background: var(--warn); }
button {
  font: inherit; font-size: 0.875rem; color: var(--text); background: var(--panel); border: 1px solid var(--soft);
  border-radius: 4px; padding: 0.25rem 0.75rem; cursor: pointer; min-height: 2rem;
}
button[aria-pressed="true"] { background: var(--text); color: var(--page); }
button:focus-visible { outline: 3px solid var(--start); outline-offset: 2px; }
.problem { border-left: 4px solid var(--bad); padding-left: 0.75rem; margin: 1rem 0; }
.problem p { margin: 0.15rem 0; }
.problem p:first-child { font-weight: 600; }
.problem code { background: var(--panel); padding: 0.1rem 0.3rem; border-radius: 3px; }
.curves figcaption { font-variant-numeric: tabular-nums; }
"""
)
