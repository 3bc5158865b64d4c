/** Navigation of narrow screens: one tab per group; a group with several pages opens a menu. */

import { useState } from "react";
import { Dialog, DialogTrigger, Popover } from "react-aria-components";
import { useLocation } from "react-router";

import { useCurrentRun } from "@/components/runs/current-run";
import { TriggerButton } from "@/components/ui/button";
import { Icon } from "@/components/ui/icon";

import { PageLink } from "./page-link";
import { GENERAL_PAGES, GLOSSARY_PAGE, type PageGroup, pageGroups } from "./pages";
import { ThemeChoice } from "./theme-choice";

const MORE: PageGroup = { name: "More", icon: "more", pages: [...GENERAL_PAGES, GLOSSARY_PAGE] };

function isCurrent({ pages }: PageGroup, pathname: string): boolean {
  const section = pathname.split("/")[1] ?? "";
  return pages.some(({ page }) => (page === "home" ? "" : page) === section);
}

function GroupTab({ group }: { readonly group: PageGroup }) {
  const [isOpen, setOpen] = useState(false);
  const { pathname } = useLocation();
  return (
    <DialogTrigger isOpen={isOpen} onOpenChange={setOpen}>
      <TriggerButton className={isCurrent(group, pathname) ? "current" : ""}>
        <Icon name={group.icon} />
        {group.name}
      </TriggerButton>
      <Popover className="popover group-menu" placement="top">
        <Dialog aria-label={group.name}>
          <nav aria-label={`${group.name} pages`}>
            {group.pages.map((entry) => (
              <PageLink key={entry.page} entry={entry} onClick={() => setOpen(false)} />
            ))}
          </nav>
          {group === MORE && <ThemeChoice />}
        </Dialog>
      </Popover>
    </DialogTrigger>
  );
}

export function Tabs() {
  const { runs } = useCurrentRun();
  return (
    <nav className="tabs" aria-label="Pages">
      {[...pageGroups(runs), MORE].map((group) => {
        const [only, second] = group.pages;
        const isSingle = only !== undefined && second === undefined;
        return isSingle ? (
          <PageLink key={group.name} entry={{ ...only, name: group.name }} />
        ) : (
          <GroupTab key={group.name} group={group} />
        );
      })}
    </nav>
  );
}
