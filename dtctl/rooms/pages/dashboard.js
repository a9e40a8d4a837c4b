"use strict";
// Puts what has changed into the page: parts come as HTML that the server has made, and only what differs is touched,
// so that focus, selection, scrolled tables and opened details stay as they are. Shows the values of curves under the
// pointer and by keys, and follows the log of a task.
(() => {
  const link = document.getElementById("link");
  const hold = document.getElementById("hold");
  let waiting = null; // parts that have come while the page is held

  const ended = () => document.documentElement.dataset.phase === "ended";

  function say(state) {
    if (ended() && ["live", "held"].includes(state)) state = "ended";
    hold.hidden = ended();
    link.dataset.state = state;
    if (link.textContent !== link.dataset[state]) link.textContent = link.dataset[state];
  }

  function attributes(was, node) {
    const own = (name) => name === "open" && was.nodeName === "DETAILS"; // the reader's choice
    for (const { name, value } of node.attributes) {
      if (!own(name) && was.getAttribute(name) !== value) was.setAttribute(name, value);
    }
    for (const { name } of [...was.attributes]) {
      if (!own(name) && !node.hasAttribute(name)) was.removeAttribute(name);
    }
  }

  function children(old, fresh) {
    const were = [...old.childNodes];
    const are = [...fresh.childNodes];
    are.forEach((node, place) => {
      const was = were[place];
      if (!was) old.append(node);
      else if (was.nodeType !== node.nodeType || was.nodeName !== node.nodeName) was.replaceWith(node);
      else if (node.nodeType === Node.TEXT_NODE) {
        if (was.data !== node.data) was.data = node.data;
      } else if (!was.isEqualNode(node) && !was.hasAttribute("data-own")) {
        attributes(was, node);
        children(was, node);
      }
    });
    were.slice(are.length).forEach((node) => node.remove());
  }

  function show(parts) {
    for (const [name, text] of Object.entries(parts)) {
      const place = document.getElementById("part-" + name);
      if (name === "title") document.title = text;
      else if (name === "phase") {
        document.documentElement.dataset.phase = text;
        if (link.dataset.state) say(link.dataset.state);
      }
      else if (place) children(place, new DOMParser().parseFromString("<!DOCTYPE html><body>" + text, "text/html").body);
    }
    document.querySelectorAll("figure").forEach((figure) => read(figure, chosen.get(nameOf(figure))));
    followLog();
  }

  // The value of a curve: of the newest step, until a pointer or a key chooses another.
  const chosen = new Map(); // name of a figure -> the step that keys have chosen
  const nameOf = (figure) => figure.querySelector("h3").textContent;
  const stepOf = (reading) => Number(reading.textContent.match(/\d+/));

  function read(figure, step) {
    const readings = [...figure.querySelectorAll(".readings rect")];
    const slider = figure.querySelector(".value");
    if (!readings.length || !slider) return -1;
    let at = step === undefined ? -1 : readings.findIndex((reading) => stepOf(reading) >= step);
    readings.forEach((reading, place) => reading.classList.toggle("chosen", place === at));
    if (at < 0) at = readings.length - 1;
    const text = readings[at].textContent;
    if (slider.textContent !== text) slider.textContent = text;
    slider.setAttribute("aria-valuenow", String(at + 1));
    slider.setAttribute("aria-valuetext", text);
    return at;
  }

  for (const kind of ["pointerover", "pointerdown"]) {
    document.addEventListener(kind, ({ target }) => {
      const figure = target.closest("figure");
      if (figure && target.matches(".readings rect")) read(figure, stepOf(target));
    });
  }
  document.addEventListener("pointerout", ({ target, relatedTarget }) => {
    const figure = target.closest("figure");
    if (figure && !(relatedTarget && figure.contains(relatedTarget))) read(figure, chosen.get(nameOf(figure)));
  });
  const moves = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -1e9, End: 1e9 };
  document.addEventListener("keydown", (event) => {
    if (!(event.key in moves) || !event.target.matches(".value")) return;
    const figure = event.target.closest("figure");
    const readings = [...figure.querySelectorAll(".readings rect")];
    const at = read(figure, chosen.get(nameOf(figure))) + moves[event.key];
    const step = stepOf(readings[Math.max(0, Math.min(readings.length - 1, at))]);
    if (at >= readings.length - 1) chosen.delete(nameOf(figure));
    else chosen.set(nameOf(figure), step);
    read(figure, step);
    event.preventDefault();
  });

  // The log of one task: what comes is appended, and lines without the searched text are hidden.
  const MOST_LINES = 2000;
  const log = document.getElementById("log");
  const search = document.getElementById("log-search");
  let source = null;
  let followed = ""; // the task whose log is shown
  let heldLines = [];

  function fill(line, text) {
    const wanted = search.value.toLowerCase();
    const place = wanted ? text.toLowerCase().indexOf(wanted) : -1;
    line.hidden = Boolean(wanted) && place < 0;
    line.textContent = text || " ";
    if (place < 0) return;
    const mark = document.createElement("mark");
    mark.textContent = text.slice(place, place + wanted.length);
    line.replaceChildren(text.slice(0, place), mark, text.slice(place + wanted.length));
  }

  function countLines() {
    const found = search.value ? log.querySelectorAll("div:not([hidden])").length + " of " : "";
    document.getElementById("log-count").textContent = found + log.childElementCount + " lines";
  }

  function addLines(texts) {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 30;
    for (const text of texts) {
      const line = document.createElement("div");
      fill(line, text);
      log.append(line);
    }
    while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
    countLines();
  }

  function followLog() {
    const task = document.getElementById("log-task")?.value;
    if (!task || task === followed) return;
    followed = task;
    log.setAttribute("aria-label", "The end of the log of " + task);
    source?.close();
    source = new EventSource("log?task=" + encodeURIComponent(task));
    source.addEventListener("begin", () => {
      log.replaceChildren();
      heldLines = [];
      countLines();
    });
    source.addEventListener("lines", (event) => {
      if (waiting) heldLines.push(...JSON.parse(event.data));
      else addLines(JSON.parse(event.data));
    });
    source.addEventListener("error", ({ target }) => {
      if (target.readyState !== EventSource.CLOSED || link.dataset.state === "over") return;
      addLines(["--- dtctl follows no more logs now: close another page, or type: dtctl logs " + task + " -f ---"]);
    });
  }

  document.addEventListener("change", ({ target }) => {
    if (target.id === "log-task") followLog();
  });
  search.addEventListener("input", () => {
    for (const line of log.children) fill(line, line.textContent);
    log.scrollTop = log.scrollHeight;
    countLines();
  });

  hold.hidden = ended();
  hold.addEventListener("click", () => {
    if (waiting) show(waiting);
    waiting = waiting ? null : {};
    if (!waiting) addLines(heldLines.splice(0));
    hold.setAttribute("aria-pressed", String(Boolean(waiting)));
    if (["live", "held"].includes(link.dataset.state)) say(waiting ? "held" : "live");
  });

  const news = new EventSource("news?from=" + document.documentElement.dataset.number);
  news.addEventListener("open", () => say(waiting ? "held" : "live"));
  news.addEventListener("parts", (event) => {
    const parts = JSON.parse(event.data);
    if (waiting) Object.assign(waiting, parts);
    else show(parts);
  });
  news.addEventListener("over", () => {
    news.close();
    source?.close();
    say("over");
  });
  followLog();
  news.addEventListener("error", () => say(news.readyState === EventSource.CLOSED ? "over" : "lost"));
})();
