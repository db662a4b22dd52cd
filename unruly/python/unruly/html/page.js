// Draws every chart of the page from the specifications in #specs. Colours are CSS variables, so a
// chart follows the reader's scheme, and paper, without being drawn again. Fetches nothing.
(() => {
  "use strict";
  const root = document.documentElement;
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const charts = [...document.querySelectorAll(".chart")];
  const minus = (text) => text.replace("-", "\u2212");

  function significant(value) {
    return Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 20 });
  }
  function scaled(value, steps) {
    const found = steps.find(([scale]) => Math.abs(value) >= scale * 0.9995) || steps[steps.length - 1];
    return value === 0 ? "0" : minus(significant(value / found[0]) + "\u00a0" + found[1]);
  }
  const formats = {
    latency: (v) => scaled(v, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]),
    size: (v) => scaled(v, [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]),
    share: (v) => minus(significant(v * 100)) + "\u00a0%",
    amount: (v) => (Math.abs(v) >= 1e6 ? scaled(v, [[1e9, "G"], [1e6, "M"]]) : minus(significant(v))),
  };
  const expressionFunctions = Object.fromEntries(Object.entries(formats).map(
    ([name, format]) => [name, (value) => (Number.isFinite(value) ? format(value) : "\u2013")]));

  function config() {
    const v = (name) => `var(--${name})`;
    const font = getComputedStyle(root).getPropertyValue("--sans").trim(); // measured by Vega itself
    const axis = {
      labelColor: v("soft"), titleColor: v("soft"), gridColor: v("rule"), gridOpacity: 0.55, domain: false,
      tickColor: v("rule"), labelFont: font, titleFont: font, labelFontSize: 11.5, titleFontSize: 12,
      titleFontWeight: "normal", labelPadding: 5, titlePadding: 8, labelOverlap: true, labelSeparation: 6,
    };
    return {
      background: null, customFormatTypes: true, aria: false, font, padding: 2, axis,
      axisDiscrete: { grid: false, ticks: false, labelFontSize: 12, labelColor: v("ink"), labelPadding: 6 },
      axisXQuantitative: { labelFlush: 16 }, axisBand: { grid: false, ticks: false }, view: { stroke: null }, mark: { tooltip: false },
      range: { category: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => v("c" + i)) },
      text: { font }, rule: { color: v("soft") },
      style: {
        plain: { color: v("soft") }, plainbar: { color: v("c0") }, second: { color: v("c1") },
        failed: { color: v("bad") }, ink: { color: v("ink") }, paper: { color: v("paper") },
        heat: { color: v("heat"), stroke: v("paper"), strokeWidth: 1.5 },
        saved: { color: v("good") }, zero: { color: v("soft"), strokeDash: [2, 3] },
      },
    };
  }

  const open = (closed) => {
    for (const details of closed) details.open = true;
    return closed;
  };
  const close = (opened) => opened.forEach((details) => { details.open = false; });
  function closedAround(element) {
    const found = [];
    for (let at = element.parentElement; at; at = at.parentElement) {
      if (at.tagName === "DETAILS" && !at.open) found.push(at);
    }
    return found;
  }

  // Paper has nothing to click on: it shows every table and every run.
  function followPrinter() {
    let opened = [];
    addEventListener("beforeprint", () => { opened = open([...document.querySelectorAll("details:not([open])")]); });
    addEventListener("afterprint", () => { close(opened); opened = []; });
  }

  // A chart that was hidden while the window changed its width takes the new one when it is shown.
  function followDetails() {
    for (const details of document.querySelectorAll("details")) {
      details.addEventListener("toggle", () => {
        if (details.open && details.querySelector(".chart")) dispatchEvent(new Event("resize"));
      });
    }
    for (const link of document.querySelectorAll("nav a")) {
      const place = document.getElementById(link.hash.slice(1));
      if (place && place.tagName === "DETAILS") link.addEventListener("click", () => { place.open = true; });
    }
  }

  async function draw(chart, settings) {
    const options = {
      actions: false, renderer: "svg", mode: "vega-lite", config: settings, expressionFunctions,
      tooltip: { theme: "unruly" },
    };
    const opened = open(closedAround(chart)); // what is hidden has no width
    try {
      // Vega names what it draws on by itself; the words for the reader stay on the outer element.
      const canvas = document.createElement("div");
      canvas.setAttribute("aria-hidden", "true");
      chart.replaceChildren(canvas);
      const result = await vegaEmbed(canvas, structuredClone(specs[chart.dataset.panel]), options);
      await result.view.runAsync();
      chart.dataset.drawn = "yes";
    } catch (error) {
      chart.dataset.drawn = "no";
      const note = document.createElement("p");
      note.className = "broken";
      note.textContent = "This figure could not be drawn: " + error.message;
      chart.replaceChildren(note);
      console.error(chart.dataset.panel, error);
    }
    close(opened);
  }

  async function drawAll() {
    root.dataset.figures = "drawing";
    const settings = config();
    for (const chart of charts) {
      await draw(chart, settings);
      await new Promise((resume) => setTimeout(resume, 0)); // the page stays responsive
    }
    root.dataset.figures = "done";
  }

  function followReader() {
    const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
    const places = [...links.keys()].map((id) => document.getElementById(id)).filter(Boolean);
    const mark = () => {
      const passed = places.filter((p) => p.getBoundingClientRect().top < innerHeight / 3);
      const here = passed.length ? passed[passed.length - 1].id : places[0].id;
      for (const [id, link] of links) link.classList.toggle("here", id === here);
    };
    addEventListener("scroll", mark, { passive: true });
    mark();
  }

  followReader();
  followPrinter();
  followDetails();
  drawAll();
})();
