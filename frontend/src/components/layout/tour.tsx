/** A tour of the dashboard in six steps. The step is in the address, so that a link opens it and Back returns to it. */

import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link, Navigate, useLocation } from "react-router";

import { sessionsQuery } from "@/api/queries";
import { useCurrentRun } from "@/components/runs/current-run";
import { type PageName, pageLinks, useComparedLinks } from "@/components/runs/page-links";
import { LinkButton } from "@/components/ui/button";

import { hasPrompt } from "./navigation/pages";

interface Step {
  readonly page: PageName;
  readonly title: string;
  /** The names of buttons and views are between asterisks. */
  readonly text: string;
  /** Selector of what it describes. */
  readonly marks: string;
  /** A token with clear labels, in the example. */
  readonly lock?: string;
}

/** A text of everyday words. */
export const EXAMPLE_PROMPT = "The doctor gave the patient some medicine for her pain";

const STEPS: readonly Step[] = [
  {
    page: "home",
    title: "What an expert does",
    text: "Move the slider: more of an expert changes more of the text. Green words became more likely.",
    marks: ".hero-track",
  },
  {
    page: "experts",
    title: "Find an expert",
    text: "Sort by steerability, or search for words. An expert’s page shows what it fires on and what it writes.",
    marks: ".filters",
  },
  {
    page: "routing",
    title: "Follow a sentence",
    text: "Each row is an expert, each column a token. Press a token to see what its experts write.",
    marks: ".heat-box",
    lock: "3",
  },
  {
    page: "layers",
    title: "Through all layers",
    text: "The same sentence in every layer. Press a cell to see which later experts it feeds. **Circuit** draws what leads to the next token.",
    marks: ".trace-box",
  },
  {
    page: "steering",
    title: "Steer a text",
    text: "Add an expert to the tray, and move its slider: the text follows. **Measure side effects** gives the price on other text, **Strength** suggests a value, **Sessions** has examples.",
    marks: ".edits",
  },
  {
    page: "evaluate",
    title: "Is it faithful?",
    text: "What the replacement costs beside transcoders of equal size, with intervals. Also where it loses.",
    marks: ".report-verdict",
  },
];

/**
 * Addresses of the steps, from 1; that after the last one is Home. The one that steers opens a saved text of the run whose
 * edits are not costly, if there is one. `run` is that of the tour, which the last step leaves for one with a comparison.
 */
export function useTourUrl(isBegun = false, run?: string): (step: number) => string {
  const compared = useComparedLinks();
  const { name: current } = useCurrentRun();
  const name = run ?? current;
  const { data: saved } = useQuery({ ...sessionsQuery(name ?? ""), enabled: isBegun && name !== null });
  const shown = saved?.sessions.find(({ is_chat: isChat, price }) => !isChat && price?.is_costly === false);
  const edits = shown?.edits.map(({ expert, mode, strength = 1 }) => `${expert}:${mode}:${strength}`);
  const steered = edits && { prompt: shown?.prompt ?? "", edits: edits.join(",") };
  return (step) => {
    const { page, lock } = STEPS[step - 1] ?? { page: "home" };
    const links = page === "evaluate" ? compared : pageLinks(name);
    const prompt = { ...(hasPrompt(page) && { prompt: EXAMPLE_PROMPT, ...(lock !== undefined && { lock }) }) };
    const url = links.page(page, { ...prompt, ...(page === "steering" && steered) });
    return step > STEPS.length ? url : `${url}#tour-${step}${page === "evaluate" && name !== null ? `-${name}` : ""}`;
  };
}

/** Marks what the step describes and scrolls to it, as soon as it is there. */
function useMark(selector: string | undefined, page: string) {
  useEffect(() => {
    const main = document.getElementById("main");
    if (selector === undefined || main === null) return undefined;
    let marked: Element | null = null;
    const mark = () => {
      const found = main.querySelector(selector);
      if (found === marked) return;
      marked?.removeAttribute("data-toured");
      found?.setAttribute("data-toured", "");
      const { top = 0, height = 0 } = found?.getBoundingClientRect() ?? {};
      // Of what does not fit above the tour, its beginning.
      const block = height > 0.6 * innerHeight ? "start" : "center";
      if (top < 0 || top > 0.7 * innerHeight) found?.scrollIntoView({ block });
      marked = found;
    };
    mark();
    const observer = new MutationObserver(mark);
    observer.observe(main, { childList: true, subtree: true });
    return () => {
      observer.disconnect();
      marked?.removeAttribute("data-toured");
    };
  }, [selector, page]);
}

export function Tour() {
  const { hash, pathname, search } = useLocation();
  const [, digit = 0, run] = /^#tour-(\d)(?:-(.+))?$/.exec(hash) ?? [];
  const number = Number(digit);
  const urlOf = useTourUrl(number > 0, run);
  const step = STEPS[number - 1];
  useMark(step?.marks, pathname);
  if (step === undefined) return null;
  if (pathname === "/" && step.page !== "home") return <Navigate replace to={urlOf(number)} />;
  return (
    <aside className="row wrap tour" aria-label="Tour">
      <p className="dim">
        Tour, {number} of {STEPS.length}
      </p>
      <h2>{step.title}</h2>
      <p>{step.text.split("**").map((part, i) => (i % 2 === 0 ? part : <b key={i}>{part}</b>))}</p>
      <footer className="row">
        {number < STEPS.length && (
          <Link className="link" to={pathname + search} replace>
            Skip
          </Link>
        )}
        <span className="grow" />
        {number > 1 && (
          <LinkButton size="small" to={urlOf(number - 1)}>
            Back
          </LinkButton>
        )}
        <LinkButton size="small" variant="primary" to={urlOf(number + 1)}>
          {number < STEPS.length ? "Next" : "Done"}
        </LinkButton>
      </footer>
    </aside>
  );
}
