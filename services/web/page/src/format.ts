// Numbers as a person reads them.

const kUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function unitOf(n: number): number {
  const power = Math.floor(Math.log2(Math.max(1, n)) / 10);
  return Math.min(power, kUnits.length - 1);
}

function inUnit(n: number, unit: number): string {
  const scaled = n / 1024 ** unit;
  return scaled >= 100 || Number.isInteger(scaled)
    ? String(Math.round(scaled))
    : scaled.toFixed(1);
}

export function bytes(n: number): string {
  const unit = unitOf(n);
  return `${inUnit(n, unit)} ${kUnits[unit]}`;
}

// "31.5 / 40 GiB"
export function bytesOf(part: number, whole: number): string {
  const unit = unitOf(whole);
  if (part > 0 && unitOf(part) < unit - 1) return `${bytes(part)} / ${bytes(whole)}`;
  return `${inUnit(part, unit)} / ${inUnit(whole, unit)} ${kUnits[unit]}`;
}

// Of 0 to 1; nothing is known of undefined.
export function percent(part: number | undefined): string {
  return part === undefined ? "–" : `${Math.round(part * 100)} %`;
}

export function duration(ns: number): string {
  const s = Math.floor(ns / 1e9);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

const time = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});

export function clock(unixMs: number): string {
  return time.format(unixMs);
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${n.toLocaleString("en")} ${n === 1 ? one : many}`;
}
