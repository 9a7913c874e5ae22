// Charts as SVG: rates of the last hour, and a histogram of lines. Axes are linear, from 0, and end
// where most values do; higher ones are cut and marked, so that a spike does not flatten the rest.

import { by, clock, count, stamp } from "./common.js";

const HEIGHT = 150, LEFT = 56, BOTTOM = 18, TOP = 14;
const LONGEST = 3600, SHORTEST = 300; // seconds of the time axis
const BREAK = 15, MOST_STEPS = 1000; // seconds that interrupt a line; steps of a histogram

function part(name, attributes, text) {
  const found = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== undefined) found.textContent = text;
  return found;
}

// The least of 1, 2 or 5 times a power of ten that is no less.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

// Return where an axis ends: the few highest values are cut if they would flatten all others.
export function top(values) {
  const sorted = values.filter(Boolean).sort((one, other) => one - other);
  const few = Math.max(1, Math.floor(Math.sqrt(sorted.length) / 2));
  const most = sorted.at(-1) ?? 0, usual = sorted.at(-1 - few) ?? most;
  return most > 10 * usual ? 1.5 * usual : most;
}

// Return the means of points whose times are in the same step.
function thin(points, keys, step) {
  const steps = Map.groupBy(points, (point) => Math.floor(point.time / step));
  return [...steps.values()].map((some) => {
    const mean = (key) => some.reduce((sum, one) => sum + one[key], 0) / some.length;
    return { time: mean("time"), values: keys.map(mean) };
  });
}

// A chart of what comes in and is written, in a figure with an `output` for what is pointed at.
export class Chart {
  #figure; #place; #keys; #format; #points = []; #shown = []; #x;
  #pointed = null; #nearest; // what is pointed at, in pixels, and the point that is shown

  constructor(name, format) {
    [this.#figure, this.#format, this.#keys] = [by(`chart-${name}`), format, [name, `${name}_out`]];
    this.#place = this.#figure.querySelector("div");
    const on = (name, act) => this.#place.addEventListener(name, act);
    for (const name of ["pointermove", "click"]) // a tap is a click, after the pointer has left
      on(name, (event) => this.#point(event.clientX - this.#place.getBoundingClientRect().left));
    for (const name of ["pointerleave", "blur"]) on(name, () => this.#point(null));
    on("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key], all = this.#shown;
      const next = this.#nearest ? all[all.indexOf(this.#nearest) + move] : move && all.at(-1);
      if (next) this.#point(this.#x(next.time));
    });
    this.#place.tabIndex = 0;
    new ResizeObserver(() => this.draw(this.#points)).observe(this.#place);
  }

  // Draw points that have a `time` in seconds.
  draw(points) {
    this.#points = points;
    const width = this.#place.clientWidth;
    if (!width) return;
    const until = points.at(-1)?.time ?? Date.now() / 1000;
    const since = Math.min(Math.max(points[0]?.time ?? 0, until - LONGEST), until - SHORTEST);
    const recent = points.filter((one) => one.time >= since), length = until - since;
    this.#shown = thin(recent, this.#keys, (length / width) * 3);
    const end = ceiling(top(this.#shown.flatMap((one) => one.values)));
    const y = (value) => HEIGHT - BOTTOM - Math.min(1, value / end) * (HEIGHT - BOTTOM - TOP);
    this.#x = (time) => LEFT + ((time - since) / length) * (width - LEFT);
    const label = `now: ${this.#write(this.#keys.map((key) => recent.at(-1)?.[key] ?? 0))}`;
    const svg = part("svg", { width, height: HEIGHT, role: "img", "aria-label": label });
    for (const value of [0, end / 2, end])
      svg.append(
        part("line", { x1: LEFT, x2: width, y1: y(value), y2: y(value), class: "grid" }),
        part("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, this.#format(value)),
      );
    const step = [60, 120, 300, 900, 1800].find((one) => length / one < width / 80) ?? LONGEST;
    for (let time = Math.ceil(since / step) * step; this.#x(time) < width - 40; time += step)
      svg.append(
        part("text", { x: this.#x(time), y: HEIGHT - 4 }, stamp(time * 1000).slice(11, 16)));
    ["in", "out"].forEach((name, place) => svg.append(this.#line(name, place, y, length)));
    this.#mark(svg, end);
    svg.append(part("line", { y1: TOP, y2: HEIGHT - BOTTOM, class: "cursor" }));
    this.#place.replaceChildren(svg);
    this.#point(this.#pointed);
  }

  #line(name, place, y, length) {
    let last = -Infinity;
    const steps = this.#shown.map(({ time, values }) => {
      const command = time - last > BREAK + (2 * length) / this.#shown.length ? "M" : "L";
      last = time;
      return `${command}${this.#x(time).toFixed(1)} ${y(values[place]).toFixed(1)}`;
    });
    return part("path", { d: steps.join("") || "M0 0", class: `series ${name}` });
  }

  // Write the highest value that is cut beside where it is.
  #mark(svg, end) {
    const most = Math.max(...this.#shown.flatMap((one) => one.values), 0);
    if (most <= end) return;
    const x = this.#x(this.#shown.find((one) => one.values.includes(most)).time);
    const anchor = x > LEFT + 80 ? "end" : "start";
    svg.append(part("text", { x, y: 10, "text-anchor": anchor }, `▲ ${this.#format(most)}`));
  }

  #write(values) {
    return ["in", "written"].map((text, at) => `${text} ${this.#format(values[at])}`).join(", ");
  }

  #point(x) {
    this.#pointed = x;
    const far = (one) => Math.abs(this.#x(one.time) - x);
    const all = x === null ? [] : this.#shown.toSorted((one, other) => far(one) - far(other));
    const nearest = this.#nearest = all[0];
    this.#figure.querySelector("output").textContent = nearest
      ? `${clock(nearest.time * 1000)} ${this.#write(nearest.values)}` : "";
    const cursor = this.#figure.querySelector(".cursor");
    cursor?.classList.toggle("on", Boolean(nearest));
    for (const end of nearest ? ["x1", "x2"] : []) cursor?.setAttribute(end, this.#x(nearest.time));
  }
}

// How many lines each step of a time range has, by severity. A range is chosen with the pointer, or
// with the arrow keys and Enter; `choose` gets its two times in milliseconds.
export class Histogram {
  #place = by("histogram"); #choose; #range = null; #counts = []; #dragged = false;
  #from = -1; #to = -1; // the steps that are chosen

  constructor(choose) {
    this.#choose = choose;
    const on = (name, act) =>
      this.#place.addEventListener(name, (event) => this.#range && act(event));
    on("pointerdown", (event) => {
      if (event.button) return;
      this.#place.setPointerCapture(event.pointerId);
      this.#dragged = true;
      this.#select(this.#at(event), this.#at(event));
    });
    on("pointermove", (event) =>
      this.#select(this.#dragged ? this.#from : this.#at(event), this.#at(event)));
    on("pointerup", () => this.#dragged && this.#finish());
    for (const name of ["pointerleave", "pointercancel", "blur"]) on(name, () => this.#clear());
    on("keydown", (event) => {
      const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (move) {
        const to = Math.max(0, Math.min(this.#counts.length - 1, this.#to + move));
        this.#select(event.shiftKey && this.#from >= 0 ? this.#from : to, to);
      } else if (event.key === "Enter" && this.#from >= 0) this.#finish();
      else if (event.key === "Escape") this.#clear();
      else return;
      event.preventDefault();
    });
  }

  // Show a range as {from, to, step} in milliseconds, without lines; null for none.
  open(range) {
    this.#range = range;
    const steps = range ? Math.max(1, Math.ceil((range.to - range.from) / range.step)) : 0;
    this.#counts = Array.from({ length: steps }, () => [0, 0, 0]);
    this.draw();
  }

  // Count lines: [time in milliseconds, severity 0 to 2, lines] each. New ones make it longer.
  add(counts) {
    for (const [time, severity, lines] of counts) {
      const { from, step, to } = this.#range, at = Math.floor((time - from) / step);
      while (this.#counts.length <= at && at < MOST_STEPS) this.#counts.push([0, 0, 0]);
      if (!this.#counts[at]) continue;
      this.#counts[at][severity] += lines;
      this.#range.to = Math.max(to, time);
    }
  }

  draw() {
    const steps = this.#counts.length, sums = this.#counts.map(([a, b, c]) => a + b + c);
    const end = Math.max(1, top(sums));
    const box = { viewBox: `0 0 ${Math.max(1, steps)} 100`, preserveAspectRatio: "none" };
    const svg = part("svg", { ...box, "aria-hidden": true });
    this.#counts.forEach((counts, x) => {
      let bottom = 100;
      for (const [severity, name] of [[2, "error"], [1, "warning"], [0, "other"]]) {
        const least = severity && counts[severity] ? 4 : 0; // a single error is seen
        const height = Math.min(bottom, Math.max(least, (counts[severity] / end) * 100));
        bottom -= height;
        if (height) svg.append(part("rect", { x, y: bottom, width: 0.85, height, class: name }));
      }
      if (sums[x] > end)
        svg.append(part("rect", { x, y: 0, width: 0.85, height: 3, class: "bad" }));
    });
    svg.append(part("rect", { y: 0, height: 100, width: 0, class: "chosen" }));
    this.#place.replaceChildren(svg);
    const ends = this.#range ? [stamp(this.#range.from), stamp(this.#range.to)] : ["", ""];
    [by("histogram-from").textContent, by("histogram-to").textContent] = ends;
    this.#select(this.#from, this.#to);
  }

  #at(event) {
    const box = this.#place.getBoundingClientRect(), steps = this.#counts.length;
    const step = Math.floor(((event.clientX - box.left) / box.width) * steps);
    return Math.max(0, Math.min(steps - 1, step));
  }

  #clear() {
    this.#dragged = false;
    this.#select(-1, -1);
  }

  #finish() {
    const first = Math.min(this.#from, this.#to), last = Math.max(this.#from, this.#to) + 1;
    const { from, since, step } = this.#range;
    this.#clear();
    this.#choose(Math.max(since, from + first * step), from + last * step);
  }

  #select(from, to) {
    [this.#from, this.#to] = [from, to];
    const first = Math.min(from, to), last = Math.max(from, to) + 1;
    const chosen = this.#place.querySelector(".chosen");
    chosen?.setAttribute("x", first);
    chosen?.setAttribute("width", from < 0 ? 0 : last - first);
    const [other, warnings, errors] = this.#counts.slice(Math.max(0, first), last).reduce(
      (sums, one) => sums.map((sum, severity) => sum + one[severity]), [0, 0, 0]);
    const at = (step) => clock(this.#range.from + step * this.#range.step);
    by("histogram-note").textContent = from < 0 || !this.#range ? ""
      : `${at(first)} to ${at(last)}: ${count(other + warnings + errors)} lines, ` +
        `${count(errors)} errors, ${count(warnings)} warnings`;
  }
}
