/** A table of experts that a search found: label and top tokens at the same places, the search's own columns between. */

import "./found.css";

import { Fragment, type ReactNode, useState } from "react";
import { Link } from "react-router";

import type { AutomaticLabel } from "@/api/types";
import { ExpertLabel, LabelNote } from "@/components/experts/expert-link";
import { useCurrentRun } from "@/components/runs/current-run";
import { pageLinks } from "@/components/runs/page-links";
import { Term } from "@/components/terms/term";
import { TokenChip } from "@/components/tokens/token-chip";
import { PlusButton } from "@/components/tray/tray-context";
import { Button } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";
import { ScrollBox } from "@/components/ui/pane-head";
import { useRoom } from "@/hooks/use-size";
import type { Edit } from "@/lib/edits/edits";
import { formatCount, formatShare } from "@/lib/text/format";

/** Of windows, in pixels. */
const WIDTHS = { phone: 0, tablet: 721, laptop: 941, desktop: 1251 };

/** What the table shows of every expert. */
interface Found {
  readonly expert: number;
  readonly label: string | null;
  readonly automatic: AutomaticLabel | null;
  /** Undefined while they load. */
  readonly topTokens: readonly { readonly text: string }[] | undefined;
  /** Default: the current run. */
  readonly run?: string | undefined;
  /** What the button adds to the tray. Default: a new edit. */
  readonly edit?: Edit | undefined;
  /** After the label. */
  readonly note?: ReactNode;
  readonly isDim?: boolean;
}

export interface FoundColumn<T> {
  readonly key: string;
  readonly name: ReactNode;
  /** A head above it and the columns beside it that have the same. */
  readonly group?: string | undefined;
  readonly isNumber?: boolean;
  readonly isSorted?: boolean;
  /** The whole head, of a column that the reader can sort by. */
  readonly head?: ReactNode | undefined;
  /** The narrowest window that has room for it. */
  readonly from?: keyof typeof WIDTHS;
  readonly cell: (row: T) => ReactNode;
}

/** The lead of experts of several layers. */
export const LAYER = { key: "lead", name: "Layer", isNumber: true } as const;

/** The activation density, where there is room for it. */
export const densityColumn = <T,>(read: (row: T) => number | null): FoundColumn<T> => ({
  ...{ key: "density", name: <Term id="density">Density, %</Term>, isNumber: true, from: "laptop" },
  cell: (row) => {
    const density = read(row);
    return density === null ? "–" : formatShare(density);
  },
});

interface FoundTableProps<T> {
  readonly label: string;
  readonly rows: readonly T[];
  readonly found: (row: T) => Found;
  /** A head above the experts' columns. */
  readonly group?: string;
  /** The column before the experts' numbers. */
  readonly lead?: FoundColumn<T>;
  readonly columns: readonly FoundColumn<T>[];
  /** The columns after the tokens. */
  readonly trail?: readonly FoundColumn<T>[];
  /** False if there is no room for the tokens on which each expert fires most often. */
  readonly withTokens?: boolean;
  /** Default: the label, linked to the expert's page. */
  readonly labelled?: (row: T) => ReactNode;
  /** A row below an expert; null for none. */
  readonly below?: (row: T) => ReactNode;
}

const MAX_TOKENS = 4;

function Labelled({ found: { run, expert, label, automatic, topTokens = [], note } }: { readonly found: Found }) {
  const { name } = useCurrentRun();
  return (
    <Link to={pageLinks(run ?? name).expert(expert)}>
      <span className="mono dim found-id" aria-hidden="true">
        {expert}{" "}
      </span>
      <ExpertLabel {...{ label, automatic, expert, topTokens }} /> {note}
    </Link>
  );
}

const className = <T,>({ key, isNumber }: FoundColumn<T>) => `c-${key}${isNumber === true ? " num" : ""}`;

/** The search's columns among those of every search. */
function allColumns<T>(props: Omit<FoundTableProps<T>, "label" | "rows">) {
  const { found, group, lead, columns, withTokens = true, trail = [], labelled } = props;
  const ofEvery: Readonly<Record<"plus" | "id" | "label" | "tokens", FoundColumn<T>>> = {
    plus: {
      key: "plus",
      group,
      name: <span className="sr">Tray</span>,
      cell: (row) => {
        const { expert, run, edit } = found(row);
        return <PlusButton {...{ expert, run, edit }} />;
      },
    },
    id: { key: "id", group, name: "Id", isNumber: true, from: "tablet", cell: (row) => found(row).expert },
    label: { key: "label", group, name: "Label", cell: labelled ?? ((row) => <Labelled found={found(row)} />) },
    tokens: {
      key: "tokens",
      name: <Term id="top_tokens">Top tokens</Term>,
      from: "desktop",
      cell: (row) =>
        found(row)
          .topTokens?.slice(0, MAX_TOKENS)
          .map(({ text }, i) => <TokenChip key={i} text={text} />),
    },
  };
  return [
    ofEvery.plus,
    ...(lead === undefined ? [] : [lead]),
    ofEvery.id,
    ofEvery.label,
    ...columns,
    ...(withTokens ? [ofEvery.tokens] : []),
    ...trail,
  ];
}

/** Rows shown at first, and by each press of the button below them. */
const PART = 40;
const MORE = 200;

/** The first rows, and a button that shows more of them. */
export function useParts<T>(rows: readonly T[]): readonly [readonly T[], ReactNode] {
  const [count, setCount] = useState(PART);
  if (rows.length <= count) return [rows, null];
  const more = Math.min(MORE, rows.length - count);
  return [
    rows.slice(0, count),
    <Button key="more" className="more-rows" onClick={() => setCount(count + more)}>
      Show {formatCount(more)} more of {formatCount(rows.length)}
    </Button>,
  ];
}

function Groups<T>({ columns }: { readonly columns: readonly FoundColumn<T>[] }) {
  if (columns.every(({ group }) => group === undefined)) return null;
  const firsts = columns.filter(({ group }, i) => i === 0 || group !== columns[i - 1]?.group);
  return (
    <tr className="found-groups">
      {firsts.map(({ key, group }) => {
        const span = columns.filter((column) => column.group === group).length;
        if (group === undefined) return <td key={key} colSpan={span} />;
        return (
          <th key={key} scope="colgroup" colSpan={span}>
            {group}
          </th>
        );
      })}
    </tr>
  );
}

export function FoundTable<T>({ label, rows, below = () => null, ...props }: FoundTableProps<T>) {
  const room = useRoom(Object.values(WIDTHS));
  const all = allColumns(props).filter(({ from = "phone" }) => WIDTHS[from] <= room);
  const keyOf = ({ run = "", expert }: Found) => `${run}/${expert}`;
  return (
    <ScrollBox
      className="found"
      label={label}
      note={rows.map(props.found).some((row) => row.label === null && row.automatic !== null) && <LabelNote />}
    >
      <table className="grid plain">
        <colgroup>
          {all.map((column) => (
            <col key={column.key} className={className(column)} />
          ))}
        </colgroup>
        <thead>
          <Groups columns={all} />
          <tr>
            {all.map((column) => (
              <Fragment key={column.key}>
                {column.head ?? (
                  <th scope="col" className={className(column)} aria-sort={column.isSorted ? "descending" : undefined}>
                    {column.isSorted === true && <Icon name="arrowDown" />} {column.name}
                  </th>
                )}
              </Fragment>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Fragment key={keyOf(props.found(row))}>
              <tr className={props.found(row).isDim === true ? "dim" : undefined}>
                {all.map((column) => (
                  <td key={column.key} className={className(column)}>
                    {column.cell(row)}
                  </td>
                ))}
              </tr>
              {below(row) !== null && (
                <tr>
                  <td colSpan={all.length} className="found-more">
                    {below(row)}
                  </td>
                </tr>
              )}
            </Fragment>
          ))}
        </tbody>
      </table>
    </ScrollBox>
  );
}
