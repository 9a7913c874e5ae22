// Shared by all views: elements, numbers and times for people, and text from hosts.

export const by = (id) => document.getElementById(id);
export const on = (id, name, act) => by(id).addEventListener(name, act);

export function make(name, text, className) {
  const found = document.createElement(name);
  if (text !== undefined) found.textContent = text;
  if (className) found.className = className;
  return found;
}

export function link(text, hash) {
  return Object.assign(make("a", text), { href: hash });
}

// Return a row of a table; a cell is a text, a text with its class, or an element.
export function row(name, cells) {
  const found = make("tr");
  for (const one of cells) {
    const cell = Array.isArray(one) ? make(name, ...one) : make(name);
    if (!Array.isArray(one)) cell.append(one);
    if (name === "th") cell.scope = "col";
    found.append(cell);
  }
  return found;
}

export function table(head, rows) {
  const found = make("table");
  if (head.length) found.createTHead().append(row("th", head));
  found.createTBody().append(...rows.map((cells) => row("td", cells)));
  return found;
}

// Text from a host: control characters, and marks that reverse text, as escapes; tabs stay.
export function plain(text) {
  return text.replace(
    /[\0-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]/gu,
    (one) => {
      const code = one.codePointAt(0);
      const byte = code >= 0xdc80 && code <= 0xdcff ? code - 0xdc00 : code;
      return byte < 0x100 ? `\\x${byte.toString(16).padStart(2, "0")}` : `\\u${code.toString(16)}`;
    },
  );
}

// A glob that matches a text alone; globs are separated by spaces.
export const glob = (text) => text.replace(/[[*?]/g, "[$&]").replace(/\s/g, "?");

export function size(bytes) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  const value = bytes / 1000 ** power;
  return `${value.toFixed(power && value < 10 ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

// With commas; `toLocaleString` takes 20 ms the first time.
export const count = (number) => String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ",");
export const rate = (number) => (number && number < 10 ? number.toFixed(1) : count(number));

// A number with what it counts: `1 host`, `2 hosts`.
export const counted = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function duration(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const [unit, length] = units.find(([, length]) => seconds >= length) ?? units.at(-1);
  return `${(seconds / length).toFixed(seconds < 10 * length && length > 1 ? 1 : 0)} ${unit}`;
}

// The time zone in which times are shown and entered: the browser's, UTC, or that of a link.
export const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
let format; // of the chosen zone
export let zone;
export function setZone(name) {
  const style = { dateStyle: "short", timeStyle: "medium" }; // 2026-11-29 14:03:07
  try {
    [format, zone] = [new Intl.DateTimeFormat("sv", { ...style, timeZone: name }), name];
  } catch {} // a link may name a zone that this browser does not know
}
setZone(LOCAL);

// A date and time from milliseconds since the epoch; `clock` without the date.
export const stamp = (time) => format.format(time);
export const clock = (time) => stamp(time).slice(11);

// Follow the server-sent events of an address until `close`; call `show` with each document.
// EventSource hides the text of a refusal, so it is fetched.
export function follow(address, show) {
  const source = new EventSource(address);
  source.onmessage = (event) => show(JSON.parse(event.data));
  source.onerror = async () => {
    const isRefused = source.readyState === EventSource.CLOSED;
    const trouble = (isRefused && (await refusal(address))) || "The console does not answer.";
    show({ trouble, away: true });
  };
  return source;
}

async function refusal(address) {
  const answer = await fetch(address).catch(() => null);
  if (answer && !answer.ok) return (await answer.text()).trim();
  await answer?.body.cancel();
  return "";
}

// Return the document at an address; throws an error with the text of a refusal.
export async function ask(address) {
  const answer = await fetch(address);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

// Copy text to the clipboard; return what to say about it. A page of plain http has no
// `navigator.clipboard`.
export async function copy(text) {
  const refused = "the browser does not let this page copy";
  if (navigator.clipboard)
    return navigator.clipboard.writeText(text).then(() => "copied", () => refused);
  const area = make("textarea", text);
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied ? "copied" : refused;
}
