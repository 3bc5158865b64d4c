import type { ReactNode } from "react";

import { PLACES } from "@/components/layout/navigation/pages";
import { usePageLinks } from "@/components/runs/page-links";
import { LinkButton } from "@/components/ui/button";

/** What a link names is not there: why, and where to go instead. */
export function Missing({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  const links = usePageLinks();
  return (
    <section className="state alone">
      <h1>{title}</h1>
      <div>
        <p>{children}</p>
        <nav aria-label="Pages">
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
