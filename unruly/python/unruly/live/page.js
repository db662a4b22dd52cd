// Asks for the state each second and writes it into the page. Every text of a run is set as text.
(() => {
  "use strict";
  const at = (id) => document.getElementById(id);
  const SVG = "http://www.w3.org/2000/svg";
  const WORDS = {
    starting: "starting", "warming up": "warming up", measuring: "measuring", ending: "waiting for the last replies",
    ended: "ended", stopped: "stopped before its end",
  };
  const OVER = new Set(["ended", "stopped"]);

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }
  function shape(name, attributes, text) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }
  function latency(ns) {
    const found = [[1e9, "s"], [1e6, "ms"], [1e3, "\u00b5s"], [1, "ns"]].find(([scale]) => ns >= scale) || [1, "ns"];
    return Number((ns / found[0]).toPrecision(3)).toLocaleString("en") + "\u00a0" + found[1];
  }
  function time(seconds) {
    const whole = Math.max(0, Math.round(seconds));
    return whole < 120 ? `${whole} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
  }

  function headline(state) {
    const op = state.ops[0];
    if (!op) return ["The run starts", "No measured request has ended yet."];
    const p99 = op.steps.find((step) => step.name === "p99");
    if (p99.value === "failed") return [`More than 1 % of ${op.name} failed`, "The p99 falls among failed requests."];
    if (p99.value === "\u2013" || p99.value === "-") {
      return [`${op.name}: ${op.n} requests so far`, "The p99 has no value yet."];
    }
    return [`${op.name}: p99 ${p99.value} so far`, p99.known
      ? `The p99 lies ${p99.text}, with a confidence of 95 %.`
      : `Its bounds are not known yet: ${p99.text}.`];
  }

  function cells(op) {
    const row = element("tr");
    row.append(element("th", op.name, { scope: "row" }));
    for (const step of op.steps) {
      const cell = element("td", undefined, { "data-name": step.name, class: step.known ? "words" : "words unsure" });
      cell.append(element("span", step.value, { class: "value" }), element("span", step.text, { class: "reason" }));
      row.append(cell);
    }
    for (const [name, value] of [["Requests", op.n], ["Failed", op.failed], ["Episodes", op.episodes]]) {
      row.append(element("td", value, { "data-name": name }));
    }
    return row;
  }

  function line(values, x, y) {
    let path = "";
    let pen = false;
    values.forEach((value, place) => {
      if (value === null) { pen = false; return; }
      path += `${pen ? "L" : "M"}${x(place + 0.5).toFixed(1)},${y(value).toFixed(1)}`;
      if (!pen && values[place + 1] == null) path += "h0.1";
      pen = true;
    });
    return path;
  }

  function draw(series) {
    const plot = at("plot");
    const width = plot.clientWidth || 800;
    const height = 260;
    const [left, right, top, bottom] = [64, 8, 8, 26];
    plot.setAttribute("viewBox", `0 0 ${width} ${height}`);
    plot.replaceChildren();
    const values = [...series.p50, ...series.max].filter((it) => it !== null);
    const pieces = series.p50.length;
    at("caption").textContent = pieces ? `Each point is ${series.width_s === 1 ? "a second" : `${series.width_s} s`} of all operations together.` : "";
    if (!values.length) return;
    const low = Math.floor(Math.log10(Math.min(...values)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...values))));
    const x = (place) => left + (place / Math.max(pieces, 10)) * (width - left - right);
    const y = (value) => top + (high - Math.log10(value)) / (high - low) * (height - top - bottom);
    for (let power = low; power <= high; power += 1) {
      plot.append(shape("line", { class: "grid", x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power) }));
      plot.append(shape("text", { x: left - 8, y: y(10 ** power) + 4, "text-anchor": "end" }, latency(10 ** power)));
    }
    const step = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200].find(
      (it) => (it / series.width_s / Math.max(pieces, 10)) * (width - left) >= 64) || 14400;
    for (let second = 0; second <= Math.max(pieces, 10) * series.width_s; second += step) {
      plot.append(shape("text", { x: x(second / series.width_s), y: height - 6, "text-anchor": "middle" }, time(second)));
    }
    series.failed_hz.forEach((rate, place) => {
      const all = rate + series.answered_hz[place];
      if (!rate) return;
      const tall = Math.max(2, (rate / all) * (height - top - bottom));
      plot.append(shape("rect", { class: "failed", x: x(place), width: Math.max(1, x(place + 1) - x(place)), y: height - bottom - tall, height: tall }));
    });
    for (const [name, colour] of [["max", "--c3"], ["p99", "--c1"], ["p50", "--c0"]]) {
      plot.append(shape("path", { d: line(series[name], x, y), style: `stroke: var(${colour})` }));
    }
  }

  function show(state) {
    const trial = state.trial;
    const over = OVER.has(state.phase);
    at("state").textContent = WORDS[state.phase];
    at("live").classList.toggle("gone", over);
    const several = trial.of > 1 ? `trial ${trial.number} of ${trial.of}, ${trial.cell} \u00b7 ` : "";
    const whole = ((trial.warmup_ns || 0) + (trial.duration_ns || 0)) / 1e9;
    at("where").textContent = [`\u00b7 ${several}${state.run.name || ""}`,
      over ? "" : ` \u00b7 ${time(Math.min(state.past_s, whole))} of ${time(whole)}`].join("");
    at("done").style.width = `${over ? 100 : Math.min(100, (100 * state.past_s) / Math.max(whole, 1))}%`;
    const [head, text] = headline(state);
    at("headline").textContent = head;
    at("sentence").textContent = over ? `${text} The verdict: unruly verdict ${state.run.directory}` : text;
    document.title = `${head} \u00b7 unruly`;
    at("facts").replaceChildren(...state.facts.map(([name, value]) => {
      const fact = element("div");
      fact.append(element("dt", name), element("dd", value));
      return fact;
    }));
    at("ops").replaceChildren(...state.ops.map(cells));
    draw(state.series);
    at("earlier").classList.toggle("hidden", state.done.length === 0 || trial.of < 2);
    at("trials").replaceChildren(...state.done.map((it) => {
      const row = element("tr");
      for (const value of [it.number, it.cell, it.op]) row.append(element("td", String(value)));
      for (const value of [it.n, it.failed, it.p99]) row.append(element("td", value, { class: "number" }));
      row.append(element("td", it.between));
      return row;
    }));
  }

  let last = null;
  async function ask() {
    try {
      const reply = await fetch("state.json", { cache: "no-store" });
      if (!reply.ok) throw new Error(String(reply.status));
      last = await reply.json();
      show(last);
      if (OVER.has(last.phase)) return;
    } catch {
      at("live").classList.add("gone");
      at("state").textContent = last && last.phase !== "starting" ? "the run has ended, or cannot be reached" : "not reached";
      if (last) at("sentence").textContent = `These are its last figures. The verdict: unruly verdict ${last.run.directory}`;
    }
    setTimeout(ask, 1000);
  }
  window.addEventListener("resize", () => last && draw(last.series));
  ask();
})();
