/** How fitting goes, one curve at a time, beside another run's where one is chosen. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import { Menu, MenuItem, MenuTrigger, Popover } from "react-aria-components";

import { figureQuery } from "@/api/queries";
import type { RunDetail } from "@/api/types";
import { useCurrentRun } from "@/components/current-run";
import { FigureView } from "@/components/figure/figure-view";
import { Icon } from "@/components/icon";
import { Segmented } from "@/components/segmented";
import { EmptyState, ErrorState, LoadingState } from "@/components/states";
import { TriggerButton } from "@/components/trigger-button";

import { CURVE_WORDS, curveFigure, curveOf } from "./curve-figure";
import { type CurveName, CURVES } from "./run-params";

const HEIGHT = 276;
const NOBODY = "—";

interface CurvesProps {
  readonly detail: RunDetail;
  readonly curve: CurveName;
  readonly compare: string | null;
  /** Tokens at the end of the axis. */
  readonly wanted: number;
  readonly onCurve: (curve: CurveName) => void;
  /** Controls beside the choice of the curve. */
  readonly children?: ReactNode;
}

interface CompareMenuProps {
  readonly run: string;
  readonly compare: string | null;
  readonly onCompare: (run: string | null) => void;
}

export function CompareMenu({ run, compare, onCompare }: CompareMenuProps) {
  const others = useCurrentRun().runs.filter((other) => other.name !== run);
  if (others.length === 0) return null;
  return (
    <MenuTrigger>
      <TriggerButton className={compare === null ? "btn sm" : "btn sm on"}>
        {compare ?? "Compare"}
        <Icon name="chevronDown" />
      </TriggerButton>
      <Popover className="popover" placement="bottom end">
        <Menu
          aria-label="Compare with"
          selectionMode="single"
          selectedKeys={[compare ?? NOBODY]}
          onAction={(key) => onCompare(key === NOBODY ? null : String(key))}
        >
          <MenuItem id={NOBODY}>This run alone</MenuItem>
          {others.map((other) => (
            <MenuItem key={other.name} id={other.name} className="mono">
              {other.name}
            </MenuItem>
          ))}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}

function useCurveFigure({
  detail,
  curve,
  compare,
  wanted,
}: Pick<CurvesProps, "detail" | "curve" | "compare" | "wanted">) {
  const { run, metrics } = detail;
  const own = useQuery(figureQuery("training", { run: run.name }));
  const other = useQuery({ ...figureQuery("training", { run: compare ?? "" }), enabled: compare !== null });
  const figure = useMemo(() => {
    const others =
      other.data === undefined || compare === null ? null : { run: compare, curve: curveOf(other.data, [], curve) };
    return curveFigure({
      name: curve,
      curve: curveOf(own.data, metrics, curve),
      run: run.name,
      wanted,
      other: others,
    });
  }, [own.data, other.data, metrics, curve, compare, wanted, run.name]);
  const hasRanks = curveOf(own.data, metrics, "stable_rank").values.length > 0;
  return { figure, hasRanks, isPending: own.isPending, error: own.error, refetch: own.refetch };
}

function NoCurve({ imported }: { readonly imported: boolean }) {
  return (
    <section className="pane">
      {imported ? (
        <EmptyState title="Fitted by another program">
          Its training curve is not in what was imported; mxd evaluate measures what it adds to the loss.
        </EmptyState>
      ) : (
        <EmptyState title="No step has been measured yet">
          The first comes a few seconds after fitting begins.
        </EmptyState>
      )}
    </section>
  );
}

export function Curves({ detail, curve, compare, wanted, onCurve, children }: CurvesProps) {
  const { figure, hasRanks, isPending, error, refetch } = useCurveFigure({ detail, curve, compare, wanted });
  const words = CURVE_WORDS[curve];
  if (isPending) return <LoadingState label="Loading the training curves" rows={10} rowHeight={30} />;
  if (error !== null) return <ErrorState error={error} onRetry={() => void refetch()} />;
  const chosen = (
    <Segmented
      label="Curve"
      value={curve}
      onChange={onCurve}
      segments={CURVES.filter((name) => name !== "stable_rank" || name === curve || hasRanks).map((name) => ({
        value: name,
        label: CURVE_WORDS[name].segment,
      }))}
    />
  );
  if (figure.drawn === 0 && curve === "stable_rank") {
    return (
      <section className="pane">
        <div className="pane-h">{chosen}</div>
        <EmptyState title="No ranks have been measured">
          They are while an MxD is fitted, since version 6 of the store; mxd evaluate measures them of any MxD.
        </EmptyState>
      </section>
    );
  }
  if (figure.drawn === 0) return <NoCurve imported={detail.run.origin !== null} />;
  return (
    <section className="pane">
      <FigureView
        figure={figure}
        title={words.title}
        note={words.note}
        height={HEIGHT}
        controls={
          <>
            {chosen}
            {children}
          </>
        }
      />
    </section>
  );
}
