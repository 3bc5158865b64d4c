/** Number formats. Counts have a thousands separator, ids never do; the minus sign is U+2212. */

const COUNT = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function formatCount(value: number): string {
  return COUNT.format(value).replace("-", "−");
}

/** `1 document`, `2,000 documents`. */
export function formatPlural(count: number, noun: string): string {
  return `${formatCount(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function formatFixed(value: number, digits = 2): string {
  const text = value.toFixed(digits);
  return text.replace("-", Number(text) === 0 ? "" : "−");
}

/** A difference, always signed: `+0.41`, `−0.27`, but `0.00` if it rounds to zero. */
export function formatSigned(value: number, digits = 2): string {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return text;
  return (value > 0 ? "+" : "−") + text;
}

/** A share between 0 and 1 in percent, without the % sign, which the column header shows. */
export function formatPercent(share: number, digits = 3): string {
  return formatFixed(share * 100, digits);
}

/** As `formatPercent`, but a share that would round to zero is shown as `<0.001`. */
export function formatShare(share: number, digits = 3): string {
  const text = formatPercent(share, digits);
  return share > 0 && Number(text) === 0 ? `<${formatFixed(10 ** -digits, digits)}` : text;
}

const UNITS: readonly (readonly [number, string])[] = [
  [1e12, "T"],
  [1e9, "B"],
  [1e6, "M"],
  [1e3, "k"],
];

/** Rounded amounts: `342.1 M`, `480 M`, `8.2 k`, `611`. */
export function formatCompact(value: number): string {
  const size = Math.abs(value);
  const unit = UNITS.find(([from]) => size >= from);
  if (unit === undefined) return formatCount(value);
  const text = (value / unit[0]).toFixed(1).replace(/\.0$/, "").replace("-", "−");
  return `${text} ${unit[1]}`;
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  const power = Math.min(4, Math.floor(Math.log10(bytes) / 3));
  return `${(bytes / 10 ** (3 * power)).toFixed(1)} ${["B", "kB", "MB", "GB", "TB"][power] ?? "TB"}`;
}

/** `12 s`, `37 min`, `2 h 05 min`. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 90) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 90) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

/** Relative time: `4 s ago`, `10 h ago`, `3 d ago`. */
export function formatAgo(then: string, now: number): string {
  const seconds = Math.max(0, (now - Date.parse(then)) / 1000);
  if (seconds > 172_800) return `${Math.floor(seconds / 86_400)} d ago`;
  return seconds < 5400 ? `${formatDuration(seconds)} ago` : `${Math.round(seconds / 3600)} h ago`;
}

/** In how many other runs an expert was found again: `1 of 2`, or a dash if it was not measured. */
export function formatFoundAgain(row: {
  readonly recurrence: number | null;
  readonly compared_runs: number | null;
}): string {
  return row.recurrence === null || row.compared_runs === null ? "–" : `${row.recurrence} of ${row.compared_runs}`;
}
