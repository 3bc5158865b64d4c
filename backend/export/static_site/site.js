// A run as a static site: a table of experts with search, and a page per expert. Data files call put(), so that the
// site also works when index.html is opened from a folder. Texts become text nodes, never HTML.
"use strict";

const { run, columns, rows, figures, perShard } = window.SITE;
const PAGE = 100;
// Columns that few experts have values in are left to the page of an expert.
const tableColumns = columns.filter(
  ({ key }) => 2 * rows.filter((row) => row[key] !== null).length > rows.length,
);
const byId = new Map(rows.map((row) => [row.expert, row]));
const loaded = new Map();
const waiting = new Map();

function put(name, data) {
  waiting.get(name)?.(data);
}
window.put = put;

function load(name) {
  if (!loaded.has(name)) {
    const script = document.createElement("script");
    script.src = `data/${name}.js`;
    const result = new Promise((resolve) => {
      waiting.set(name, resolve);
      script.onerror = () => resolve(null);
    });
    loaded.set(name, result);
    document.head.append(script);
  }
  return loaded.get(name);
}

function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false)
      element.setAttribute(name, value);
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

function svg(counts, title) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("viewBox", `0 0 ${counts.length} 100`);
  picture.setAttribute("preserveAspectRatio", "none");
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", title);
  const top = Math.log1p(Math.max(1, ...counts));
  counts.forEach((count, place) => {
    const bar = document.createElementNS(picture.namespaceURI, "rect");
    const height = (100 * Math.log1p(count)) / top;
    for (const [name, value] of Object.entries({
      x: place,
      y: 100 - height,
      width: 0.85,
      height,
    }))
      bar.setAttribute(name, value);
    picture.append(bar);
  });
  return h("section", { class: "bars" }, h("h2", {}, title), picture);
}

const shown = ({ kind, digits }, value) =>
  value === null
    ? "–"
    : kind === "share"
      ? `${(100 * value).toFixed(digits)} %`
      : kind === "count"
        ? value.toLocaleString("en")
        : `${kind === "difference" && value > 0 ? "+" : ""}${value.toFixed(digits)}`;

// Percentages without the digits that binary fractions add.
const rounded = (value) => Number(value.toPrecision(7));

const plain = (text) =>
  text.trim() || text.replaceAll(" ", "␣").replaceAll("\n", "↵");

function label(row) {
  if (row.label !== null) return h("span", {}, row.label);
  if (row.automatic === null) return h("span", { class: "weak" }, "no label");
  return h(
    "span",
    row.clear ? {} : { class: "weak", title: "Weak automatic label" },
    row.automatic,
  );
}

// ---------------------------------------------------------------- state: everything is in the address

const state = () => new URLSearchParams(location.hash.slice(1));

function change(values) {
  const next = state();
  for (const [name, value] of Object.entries(values))
    value === "" ? next.delete(name) : next.set(name, value);
  history.replaceState(null, "", `#${next}`);
  void show();
}

// ---------------------------------------------------------------- table

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? [];
const shardOf = (word) => (/^[a-z0-9]/.test(word) ? word[0] : "other");

async function inExamples(query) {
  const found = await Promise.all(
    wordsOf(query).map(async (word) => {
      const index = (await load(`words-${shardOf(word)}`)) ?? {};
      const lists = Object.keys(index)
        .filter((other) => other.startsWith(word))
        .map((other) => index[other]);
      return new Set(lists.flat());
    }),
  );
  return found.length === 0
    ? new Set()
    : found.reduce(
        (one, other) =>
          one.intersection?.(other) ??
          new Set([...one].filter((x) => other.has(x))),
      );
}

async function matching(query) {
  if (query === "") return rows.map((row) => ({ row, rank: 0 }));
  const text = query.toLowerCase();
  const examples = await inExamples(query);
  return rows.flatMap((row) => {
    const name = (row.label ?? row.automatic ?? "").toLowerCase();
    const rank =
      String(row.expert) === text
        ? 0
        : name.includes(text)
          ? 1
          : row.tokens.some((token) => token.toLowerCase().includes(text))
            ? 2
            : examples.has(row.expert)
              ? 3
              : null;
    return rank === null ? [] : [{ row, rank }];
  });
}

const WHERE = ["", "label", "top token", "example"];

async function table(params) {
  const query = params.get("q") ?? "";
  const sort = params.get("sort") ?? "max_activation";
  const sign = params.get("order") === "asc" ? 1 : -1;
  const limit = Number(params.get("rows") ?? PAGE);
  const bounds = columns.flatMap(({ key, filters }) =>
    filters.flatMap(({ name, end }) => {
      const value = params.get(name);
      return value === null ? [] : [{ key, end, value: Number(value) }];
    }),
  );
  const fits = (row) =>
    bounds.every(
      ({ key, end, value }) =>
        row[key] !== null &&
        (end === "min" ? row[key] >= value : row[key] <= value),
    );
  const value = ({ row }) =>
    sort === "label" ? (row.label ?? row.automatic) : row[sort];
  const compare = (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === null || y === null) return (x === null) - (y === null);
    return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
  };
  const found = (await matching(query)).filter(({ row }) => fits(row));
  found.sort(
    (a, b) => a.rank - b.rank || compare(a, b) || a.row.expert - b.row.expert,
  );
  const head = ({ key, header, description }) =>
    h(
      "th",
      {
        title: description,
        "aria-sort":
          sort === key ? (sign > 0 ? "ascending" : "descending") : null,
      },
      h(
        "button",
        {
          onclick: () =>
            change({
              sort: key,
              order: sort === key && sign < 0 ? "asc" : "desc",
            }),
        },
        header + (sort === key ? (sign > 0 ? " ↑" : " ↓") : ""),
      ),
    );
  const line = ({ row, rank }) =>
    h(
      "tr",
      {},
      h(
        "td",
        {},
        h(
          "a",
          { href: `#expert=${row.expert}` },
          h("b", {}, String(row.expert)),
        ),
      ),
      h(
        "td",
        { class: "label" },
        h("a", { href: `#expert=${row.expert}` }, label(row)),
        WHERE[rank] ? h("span", { class: "weak" }, ` · ${WHERE[rank]}`) : null,
      ),
      h(
        "td",
        { class: "tokens" },
        row.tokens
          .slice(0, 5)
          .map((token) => h("span", { class: "chip" }, plain(token))),
      ),
      tableColumns.map((column) =>
        h("td", { class: "number" }, shown(column, row[column.key])),
      ),
    );
  const titles = [
    { key: "expert", header: "Id", description: "Number of the expert." },
    {
      key: "label",
      header: "Label",
      description: "Label of a user, else the automatic one.",
    },
  ];
  return [
    h(
      "p",
      { class: "sub", role: "status" },
      `${found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} experts`,
    ),
    h(
      "div",
      { class: "wide" },
      h(
        "table",
        { class: "experts" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            titles.map(head),
            h("th", {}, "Top tokens"),
            tableColumns.map(head),
          ),
        ),
        h("tbody", {}, found.slice(0, limit).map(line)),
      ),
    ),
    found.length > limit
      ? h(
          "button",
          { class: "btn", onclick: () => change({ rows: limit + 4 * PAGE }) },
          "Show more",
        )
      : null,
  ];
}

function densities() {
  const counts = Array.from({ length: 48 }, () => 0);
  const values = rows
    .map(({ density }) => density)
    .filter((density) => density > 0)
    .map(Math.log10);
  const low = Math.floor(Math.min(-1, ...values));
  for (const value of values)
    counts[Math.min(Math.floor((48 * (value - low)) / -low), 47)] += 1;
  return svg(
    counts,
    `Experts by density, ${Number((100 * 10 ** low).toPrecision(1))} % to 100 % (both scales are logarithmic)`,
  );
}

// ---------------------------------------------------------------- expert

const step = (activation, high) =>
  `s${Math.min(Math.max(Math.round((9 * activation) / high), 1), 9)}`;

function piece(part, high) {
  if (typeof part === "string") return part;
  const [text, activation, peak] = part;
  const body = text.trim() === "" ? plain(text) : text.trimStart();
  const tip = `${plain(text)}\nActivation ${activation.toFixed(4)}`;
  const attributes = {
    class: `t ${step(activation, high)}${peak ? " peak" : ""}`,
    tabindex: 0,
    "data-tip": tip,
  };
  return [
    text.trim() === "" ? "" : text.slice(0, text.length - body.length),
    h("span", attributes, body),
  ];
}

const changes = (effects) =>
  effects
    .map(
      ([text, change]) =>
        `${plain(text)} ${change > 0 ? "+" : ""}${change.toFixed(2)}`,
    )
    .join(" · ");

async function expert(number) {
  const row = byId.get(number);
  const shard = await load(`experts-${Math.floor(number / perShard)}`);
  const found = shard?.[number];
  if (!row || !found) return [h("p", {}, `There is no expert ${number}.`)];
  const fact = (name, value) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value));
  const go = (other) =>
    h("a", { class: "btn", href: `#expert=${other}` }, String(other));
  return [
    h(
      "nav",
      {},
      number > 0 ? go(number - 1) : null,
      number + 1 < rows.length ? go(number + 1) : null,
    ),
    h("h1", {}, label(row)),
    h("p", { class: "sub" }, `Expert ${number} of ${run}`),
    h(
      "dl",
      {},
      columns.map((column) => {
        const { key, title, unit } = column;
        const hasUnit = unit && unit !== "%" && row[key] !== null;
        return fact(
          title,
          `${shown(column, row[key])}${hasUnit ? ` ${unit}` : ""}`,
        );
      }),
    ),
    h(
      "section",
      { class: "tokens" },
      h("h2", {}, "Fires most often on"),
      row.tokens.map((token) => h("span", { class: "chip" }, plain(token))),
    ),
    found.promoted.length === 0
      ? null
      : h(
          "section",
          {},
          h("h2", {}, "Promotes, nats"),
          changes(found.promoted),
          h("h2", {}, "Suppresses, nats"),
          changes(found.suppressed),
        ),
    h(
      "section",
      { class: "lines" },
      h(
        "h2",
        {},
        found.examples.length === 0
          ? "No examples: the expert is dead"
          : "Strongest examples",
      ),
      found.examples.map(([activation, parts]) =>
        h(
          "div",
          {},
          h("h2", {}, activation.toFixed(3)),
          h(
            "p",
            { class: "text" },
            parts.map((part) => piece(part, row.max_activation)).flat(),
          ),
        ),
      ),
    ),
    found.histogram.some(Boolean)
      ? svg(
          found.histogram,
          `Active tokens by activation, 0 to ${found.high} (log scale)`,
        )
      : null,
  ];
}

// ---------------------------------------------------------------- page

let turn = 0;

async function show() {
  const mine = ++turn;
  const params = state();
  const number = params.get("expert");
  const content =
    number === null ? await table(params) : await expert(Number(number));
  if (mine !== turn) return;
  document.body.dataset.view = number === null ? "table" : "expert";
  document
    .querySelector("main")
    .replaceChildren(...content.filter((part) => part !== null));
  document.title = number === null ? run : `Expert ${number} · ${run}`;
}

const search = document.querySelector("#search");
search.addEventListener("input", () =>
  change({ q: search.value.trim(), expert: "", rows: "" }),
);
const filters = document.querySelector("#filters");
for (const { title, kind, filters: ends } of columns)
  for (const { name, end } of ends) {
    const scale = kind === "share" ? 100 : 1;
    const onchange = ({ target }) =>
      change({
        [name]: target.value && String(rounded(Number(target.value) / scale)),
        rows: "",
      });
    const field = { name, type: "number", step: "any", "data-scale": scale };
    filters.append(
      h(
        "label",
        {},
        `${title} ${end === "min" ? "≥" : "≤"} `,
        h("input", { ...field, onchange }),
        kind === "share" ? " %" : "",
      ),
    );
  }

function fillFields() {
  const params = state();
  search.value = params.get("q") ?? "";
  for (const field of filters.querySelectorAll("input")) {
    const value = Number(params.get(field.name)) * field.dataset.scale;
    field.value = params.has(field.name) ? rounded(value) : "";
  }
}

document.querySelector("#figures").append(
  h(
    "dl",
    {},
    figures.map(([name, value]) =>
      h("div", {}, h("dt", {}, name), h("dd", {}, value)),
    ),
  ),
  densities(),
);
fillFields();
addEventListener("hashchange", () => {
  fillFields();
  scrollTo(0, 0);
  void show();
});
addEventListener("keydown", ({ key, target }) => {
  const number = state().get("expert");
  if (number === null || target.matches("input") || !"jk".includes(key)) return;
  const other = Number(number) + (key === "j" ? 1 : -1);
  if (byId.has(other)) location.hash = `#expert=${other}`;
});
void show();
