import type { ReactNode } from "react";

import type { RunSummary } from "@/api/types";
import { PLACES } from "@/components/layout/navigation/pages";
import { usePageLinks } from "@/components/runs/page-links";
import { LinkButton } from "@/components/ui/button";
import { Command } from "@/components/ui/copy-button";
import { EmptyState } from "@/components/ui/states";

/** What a link names is not there: why, and where to go instead. */
export function Missing({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  const links = usePageLinks();
  return (
    <section className="state alone">
      <h1>{title}</h1>
      <div>
        <p>{children}</p>
        <nav className="row wrap" aria-label="Pages">
          {PLACES.map(({ name, views }) => (
            <LinkButton key={name} size="small" to={links.page(views[0].page)}>
              {name}
            </LinkButton>
          ))}
        </nav>
      </div>
    </section>
  );
}

/** The run has no index, which most pages show. */
export function NotIndexed({ run }: { readonly run: RunSummary }) {
  return (
    <EmptyState title={`${run.name} has not been indexed yet`}>
      To collect activation statistics and top examples, run:
      <Command text={run.index_command} />
    </EmptyState>
  );
}
