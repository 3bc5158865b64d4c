import { Link } from "react-router";

import { PageBar } from "@/components/layout/navigation/page-bar";
import { usePageLinks } from "@/components/runs/page-links";
import { EmptyState } from "@/components/ui/states";

export default function NotFoundPage() {
  const links = usePageLinks();
  return (
    <>
      <title>Not found · MxD Explorer</title>
      <PageBar crumbs={[{ label: "Not found" }]} />
      <EmptyState title="Page not found">
        The link may be incomplete. <Link to={links.page("home")}>Go to Home</Link>.
      </EmptyState>
    </>
  );
}
