/** Error boundary around the page; navigating to another page resets it. */

import { Component, type ReactNode } from "react";
import { useLocation } from "react-router";

import { ErrorState } from "@/components/ui/states";

interface BoundaryProps {
  readonly children: ReactNode;
}

interface BoundaryState {
  readonly error: unknown;
}

class Boundary extends Component<BoundaryProps, BoundaryState> {
  override state: BoundaryState = { error: null };

  static getDerivedStateFromError(error: unknown): BoundaryState {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    return error === null ? this.props.children : <ErrorState error={error} onRetry={() => window.location.reload()} />;
  }
}

export function PageBoundary({ children }: BoundaryProps) {
  const { pathname } = useLocation();
  return <Boundary key={pathname}>{children}</Boundary>;
}
