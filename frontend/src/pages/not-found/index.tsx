import { Link, useLocation } from "react-router";

import { PageBar } from "@/components/layout/navigation/page-bar";
import { usePageLinks } from "@/components/runs/page-links";
import { EmptyState } from "@/components/ui/states";

export default function NotFoundPage() {
  const links = usePageLinks();
  const { pathname } = useLocation();
  return (
    <>
      <title>Not found · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Not found" }]} />
      <EmptyState title="Page not found">
        There is no page at <span className="mono">{pathname}</span>. The link may be incomplete, or from another
        version. <Link to={links.page("home")}>Go to Home</Link>, or to the{" "}
        <Link to={links.page("experts")}>experts of the run</Link>.
      </EmptyState>
    </>
  );
}
