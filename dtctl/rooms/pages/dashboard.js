"use strict";
// Puts what has changed into the page: parts come as HTML that the server has made, and only what differs is touched,
// so that focus, selection, scrolled tables and opened details stay as they are.
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
      } else if (!was.isEqualNode(node)) {
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
  }

  hold.hidden = ended();
  hold.addEventListener("click", () => {
    if (waiting) show(waiting);
    waiting = waiting ? null : {};
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
    say("over");
  });
  news.addEventListener("error", () => say(news.readyState === EventSource.CLOSED ? "over" : "lost"));
})();
