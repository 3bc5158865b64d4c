/** Head of a table of active experts: columns of the caller, then activation, share and tray. */

import type { ReactNode } from "react";

import { Term } from "@/components/terms/term";

export function ExpertsHead({ children }: { readonly children: ReactNode }) {
  return (
    <thead>
      <tr>
        {children}
        <th className="num">
          <Term id="activation">Activation</Term>
        </th>
        <th className="num">
          <Term id="output_norm">Share</Term> <span className="unit">%</span>
        </th>
        <th>
          <span className="sr">Tray</span>
        </th>
      </tr>
    </thead>
  );
}
