/** Line icons on a 16 px grid in the current text colour. */

import type { ReactNode } from "react";

const SHAPES = {
  home: <path d="M2.5 7.5 8 3l5.5 4.5M4 6.5V13h8V6.5M6.8 13V9.5h2.4V13" />,
  runs: <path d="M2.5 4h11M2.5 8h11M2.5 12h6.5" />,
  experts: (
    <>
      <rect x="2.5" y="2.5" width="4" height="4" rx=".8" />
      <rect x="9.5" y="2.5" width="4" height="4" rx=".8" />
      <rect x="2.5" y="9.5" width="4" height="4" rx=".8" />
      <rect x="9.5" y="9.5" width="4" height="4" rx=".8" fill="currentColor" />
    </>
  ),
  routing: <path d="M2.5 8h3l3.5-4.5h4.5M5.5 8 9 12.5h4.5M5.5 8h8" />,
  steering: (
    <>
      <path d="M3 4.5h5.5M12 4.5h1M3 11.5h1M7.5 11.5H13" />
      <circle cx="10.2" cy="4.5" r="1.7" />
      <circle cx="5.8" cy="11.5" r="1.7" />
    </>
  ),
  probing: <path d="M2.5 2.5v11h11M5 10.5l2.2-3 2.3 1.6 3.5-5" />,
  chevronDown: <path d="m4.5 6.5 3.5 3.5 3.5-3.5" />,
  chevronUp: <path d="m4.5 9.5 3.5-3.5 3.5 3.5" />,
  chevronLeft: <path d="M9.8 4 5.8 8l4 4" />,
  chevronRight: <path d="m6.2 4 4 4-4 4" />,
  sun: (
    <>
      <circle cx="8" cy="8" r="2.8" />
      <path d="M8 1.8v1.4M8 12.8v1.4M1.8 8h1.4M12.8 8h1.4M3.6 3.6l1 1M11.4 11.4l1 1M3.6 12.4l1-1M11.4 4.6l1-1" />
    </>
  ),
  moon: <path d="M13 9.6A5.5 5.5 0 0 1 6.4 3 5.5 5.5 0 1 0 13 9.6Z" />,
  search: (
    <>
      <circle cx="7" cy="7" r="4.3" />
      <path d="m10.3 10.3 3.2 3.2" />
    </>
  ),
  share: <path d="M8 9.8v-7M5 5.6l3-3 3 3M4.5 7.5h-1v6h9v-6h-1" />,
  link: (
    <path d="M6.8 9.2a2.6 2.6 0 0 0 3.7 0l2-2a2.6 2.6 0 0 0-3.7-3.7l-.8.8M9.2 6.8a2.6 2.6 0 0 0-3.7 0l-2 2a2.6 2.6 0 0 0 3.7 3.7l.8-.8" />
  ),
  dice: (
    <>
      <rect x="2.8" y="2.8" width="10.4" height="10.4" rx="2" />
      <path d="M5.7 5.7h.01M10.3 5.7h.01M8 8h.01M5.7 10.3h.01M10.3 10.3h.01" strokeWidth="1.9" />
    </>
  ),
  check: <path d="m3.5 8.5 3 3 6-7" />,
  plus: <path d="M8 3.5v9M3.5 8h9" />,
  close: <path d="m4.5 4.5 7 7M11.5 4.5l-7 7" />,
  bin: <path d="M3 4.5h10M6 4.5V2.8h4v1.7M4.3 4.5l.7 8.7h6l.7-8.7M6.8 7v3.8M9.2 7v3.8" />,
  download: <path d="M8 2.8v7M5 7l3 3 3-3M3 13h10" />,
  table: (
    <>
      <rect x="2.5" y="3" width="11" height="10" rx="1.2" />
      <path d="M2.5 6.5h11M6.5 6.5V13" />
    </>
  ),
  chart: <path d="M2.5 2.5v11h11M5 10l2.5-3 2 1.5L13 4.5" />,
  lasso: <path d="M3.2 9.5C1.5 6.5 4 3 8 3s6 2.2 5.6 4.8C13 11 8 11.5 5.5 10.2c-1.6 0-2.3 1.2-1.6 2s2 .3 1.6-2Z" />,
  copy: (
    <>
      <rect x="5.5" y="5.5" width="8" height="8" rx="1.2" />
      <path d="M10.5 5.5v-2a1 1 0 0 0-1-1h-6a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h2" />
    </>
  ),
  list: <path d="M6 4h7.5M6 8h7.5M6 12h7.5M2.8 4h.01M2.8 8h.01M2.8 12h.01" />,
  note: <path d="M3 3h10v7l-3 3H3zM10 13v-3h3" />,
  edit: <path d="M3 13l.6-2.8L10.8 3l2.2 2.2-7.2 7.2z" />,
  reset: <path d="M3.2 8a4.8 4.8 0 1 0 1.6-3.6L3 6M3 3v3h3" />,
  stop: <rect x="4.5" y="4.5" width="7" height="7" rx="1" fill="currentColor" />,
  play: <path d="M5.5 3.8v8.4L12 8z" fill="currentColor" />,
  warning: <path d="M8 2.8 14 13H2zM8 6.5v3M8 11.3h.01" />,
  book: <path d="M3 3.2c2-.7 3.6-.5 5 .6 1.4-1.1 3-1.3 5-.6v9.3c-2-.7-3.6-.5-5 .6-1.4-1.1-3-1.3-5-.6zM8 3.8v9.3" />,
  help: (
    <path d="M8 14.2a6.2 6.2 0 1 0 0-12.4 6.2 6.2 0 0 0 0 12.4ZM6.2 6.3c.1-1 .8-1.6 1.8-1.6s1.8.6 1.8 1.5c0 1.3-1.8 1.4-1.8 2.7M8 11.2h.01" />
  ),
  present: <path d="M2 3h12v8H2zM8 11v2.5M5 13.5h6" />,
  code: <path d="M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5" />,
  keyboard: <path d="M1.8 4.5h12.4v7H1.8zM4 7h.01M6.6 7h.01M9.3 7h.01M12 7h.01M5.3 9.3h5.4" />,
  more: <path d="M3.5 8h.01M8 8h.01M12.5 8h.01" strokeWidth="2.2" />,
  arrowDown: <path d="M8 3v10M4.5 9.5 8 13l3.5-3.5" />,
  arrowUp: <path d="M8 13V3M4.5 6.5 8 3l3.5 3.5" />,
} satisfies Record<string, ReactNode>;

export type IconName = keyof typeof SHAPES;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg className="ico" viewBox="0 0 16 16" aria-hidden="true">
      {SHAPES[name]}
    </svg>
  );
}

const BRAND = "line-strong seq-6 line-strong seq-9 line-strong seq-7 line-strong line-strong seq-4".split(" ");

export function BrandMark() {
  return (
    <svg width="20" height="20" viewBox="0 0 20 20" aria-hidden="true">
      {BRAND.map((colour, i) => (
        <rect
          key={i}
          x={1 + 6.5 * (i % 3)}
          y={1 + 6.5 * Math.floor(i / 3)}
          width="5"
          height="5"
          rx="1.2"
          fill={`var(--${colour})`}
        />
      ))}
    </svg>
  );
}
