import { Link, useLocation } from "react-router";

import { PageBar } from "@/components/layout/navigation/page-bar";
import { PLACES } from "@/components/layout/navigation/pages";
import { usePageLinks } from "@/components/runs/page-links";
import { LinkButton } from "@/components/ui/button";

export default function NotFoundPage() {
  const links = usePageLinks();
  const { pathname } = useLocation();
  return (
    <>
      <title>Not found · MxD Explorer</title>
      <PageBar crumbs={[]} />
      <section className="state alone">
        <h1>Page not found</h1>
        <div>
          <p>
            There is no page at <span className="mono">{pathname}</span>. The link may be incomplete, or from another
            version. <Link to={links.page("home")}>Go to Home</Link>, or search above.
          </p>
          <nav aria-label="Pages">
            {PLACES.map(({ name, views }) => (
              <LinkButton key={name} size="small" to={links.page(views[0].page)}>
                {name}
              </LinkButton>
            ))}
          </nav>
        </div>
      </section>
    </>
  );
}
