// Draws every chart of the page from the specifications in #specs, in the colours of the reader's
// scheme, and again when the scheme changes. Fetches nothing.
(() => {
  "use strict";
  const root = document.documentElement;
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const charts = [...document.querySelectorAll(".chart")];
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
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
    const style = getComputedStyle(root);
    const v = (name) => style.getPropertyValue("--" + name).trim();
    const font = v("sans");
    const axis = {
      labelColor: v("soft"), titleColor: v("soft"), gridColor: v("rule"), gridOpacity: 0.55, domain: false,
      tickColor: v("rule"), labelFont: font, titleFont: font, labelFontSize: 11.5, titleFontSize: 12,
      titleFontWeight: "normal", labelPadding: 5, titlePadding: 8, labelOverlap: true, labelSeparation: 6,
    };
    return {
      background: null, customFormatTypes: true, aria: false, font, padding: 2, axis,
      axisDiscrete: { grid: false, ticks: false, labelFontSize: 12, labelColor: v("ink"), labelPadding: 6 },
      axisXQuantitative: { labelFlush: 16 }, axisBand: { grid: false, ticks: false }, view: { stroke: null }, mark: { tooltip: false },
      range: {
        category: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => v("c" + i)),
        heatmap: [0, 1, 2, 3].map((i) => v("heat" + i)),
      },
      text: { font }, rule: { color: v("soft") },
      style: {
        plain: { color: v("soft") }, plainbar: { color: v("c0") }, second: { color: v("c1") },
        failed: { color: v("bad") }, ink: { color: v("ink") }, heat: { stroke: v("paper"), strokeWidth: 1.5 },
        saved: { color: v("good") }, zero: { color: v("soft"), strokeDash: [2, 3] },
      },
    };
  }

  async function draw(chart, settings) {
    const options = {
      actions: false, renderer: "svg", mode: "vega-lite", config: settings, expressionFunctions,
      tooltip: { theme: dark.matches ? "dark" : "light" },
    };
    try {
      if (chart.view) chart.view.finalize();
      // Vega names what it draws on by itself; the words for the reader stay on the outer element.
      const canvas = document.createElement("div");
      canvas.setAttribute("aria-hidden", "true");
      chart.replaceChildren(canvas);
      const result = await vegaEmbed(canvas, structuredClone(specs[chart.dataset.panel]), options);
      chart.view = result;
      chart.dataset.drawn = "yes";
    } catch (error) {
      chart.dataset.drawn = "no";
      const note = document.createElement("p");
      note.className = "broken";
      note.textContent = "This figure could not be drawn: " + error.message;
      chart.replaceChildren(note);
      console.error(chart.dataset.panel, error);
    }
  }

  let round = 0; // a later change of the scheme ends an earlier round
  async function drawAll() {
    const own = ++round;
    root.dataset.figures = "drawing";
    const settings = config();
    for (const chart of charts) {
      await draw(chart, settings);
      if (own !== round) return;
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

  dark.addEventListener("change", drawAll);
  followReader();
  drawAll();
})();
