/** Loading, empty and error states. */

import type { ReactNode } from "react";

import { ApiError, messageOf } from "@/api/http";

import { Button } from "./button";
import { Icon } from "./icon";

export function EmptyState({ title, children }: { readonly title: string; readonly children?: ReactNode }) {
  return (
    <div className="state">
      <h2>{title}</h2>
      {children !== undefined && <div>{children}</div>}
    </div>
  );
}

interface ErrorStateProps {
  readonly error: unknown;
  readonly onRetry?: () => void;
  /** Where to go instead. */
  readonly children?: ReactNode;
}

/** Client errors (4xx) would fail again. */
const isFinal = (error: unknown) => error instanceof ApiError && error.status >= 400 && error.status < 500;

export function ErrorState({ error, onRetry, children }: ErrorStateProps) {
  return (
    <div className="state error" role="alert">
      <h2 className="row">
        <Icon name="warning" /> {messageOf(error)}
      </h2>
      {onRetry !== undefined && !isFinal(error) && (
        <Button size="small" icon="reset" onClick={onRetry}>
          Try again
        </Button>
      )}
      {children !== undefined && <div>{children}</div>}
    </div>
  );
}

/** Why an action failed, beside its button; nothing if it did not. */
export function Failure({ error }: { readonly error: unknown }) {
  if (error === null) return null;
  return (
    <p className="bad" role="alert">
      {messageOf(error)}
    </p>
  );
}

interface LoadingProps {
  readonly label: string;
  /** Number and height of the placeholder bars. */
  readonly rows?: number;
  readonly rowHeight?: number;
}

const WIDTHS = [92, 78, 85, 64, 88, 71];

export function LoadingState({ label, rows = 4, rowHeight = 26 }: LoadingProps) {
  return (
    <div className="loading" role="status" aria-label={label}>
      {Array.from({ length: rows }, (_, i) => (
        <span key={i} className="row" style={{ height: rowHeight }}>
          <i style={{ width: `${WIDTHS[i % WIDTHS.length] ?? 80}%` }} />
        </span>
      ))}
    </div>
  );
}
