import { NavLink } from "react-router";

import { Icon } from "@/components/ui/icon";

import type { PageEntry } from "./pages";
import { usePromptedLink } from "./use-prompted-link";

interface PageLinkProps {
  readonly entry: PageEntry;
  readonly onClick?: () => void;
}

/** A link of the navigation; it takes the prompt along. */
export function PageLink({ entry, onClick }: PageLinkProps) {
  const linkTo = usePromptedLink();
  return (
    <NavLink to={linkTo(entry.page)} end={entry.page === "home"} onClick={onClick}>
      <Icon name={entry.icon} />
      {entry.name}
    </NavLink>
  );
}
