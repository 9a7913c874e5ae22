// Line charts as SVG: a time axis of an hour, a linear axis from 0, one path for each series.

const NAMES = "http://www.w3.org/2000/svg";
const WIDTH = 600,
  HEIGHT = 150,
  LEFT = 56,
  BOTTOM = 18,
  TOP = 8,
  HOUR = 3600;

function part(name, attributes, text) {
  const found = document.createElementNS(NAMES, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== undefined) found.textContent = text;
  return found;
}

// The least of 1, 2 or 5 times a power of ten that is no less.
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value);
}

// Draw `series`, as {name, of}, of `points` that have a `time` in seconds. `format` writes a value
// of the axis.
export function draw(place, points, series, format) {
  const until = points.length ? points.at(-1).time : 0;
  const shown = points.filter((point) => point.time > until - HOUR);
  const most = ceiling(
    Math.max(1, ...shown.flatMap((point) => series.map((one) => one.of(point)))),
  );
  const x = (time) => WIDTH - ((until - time) / HOUR) * (WIDTH - LEFT);
  const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - BOTTOM - TOP);
  const now = series.map((one) => `${one.name} ${format(shown.length ? one.of(shown.at(-1)) : 0)}`);
  const svg = part("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": `now: ${now.join(", ")}`,
  });
  for (const share of [0, 0.5, 1]) {
    svg.append(
      part("line", {
        x1: LEFT,
        x2: WIDTH,
        y1: y(share * most),
        y2: y(share * most),
        class: "grid",
      }),
    );
    svg.append(
      part(
        "text",
        { x: LEFT - 6, y: y(share * most) + 4, "text-anchor": "end" },
        format(share * most),
      ),
    );
  }
  for (const minutes of [60, 45, 30, 15]) {
    svg.append(part("text", { x: x(until - minutes * 60) + 2, y: HEIGHT - 4 }, `−${minutes} min`));
  }
  for (const one of series) {
    const path = shown.map(
      (point, place) =>
        `${place ? "L" : "M"}${x(point.time).toFixed(1)} ${y(one.of(point)).toFixed(1)}`,
    );
    svg.append(part("path", { d: path.join(""), class: `series ${one.name}` }));
  }
  place.replaceChildren(svg);
}
