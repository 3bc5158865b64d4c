/** Providers and routes. */

import { hashKey, type Query, QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Suspense, useState } from "react";
import { BrowserRouter, Route, Routes } from "react-router";

import { accessQuery } from "@/api/access";
import { ApiError } from "@/api/http/errors";
import { retry, retryDelay } from "@/api/http/retry";
import { columnsQuery, healthQuery, runsQuery } from "@/api/queries";
import { AppShell } from "@/components/layout/app-shell";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { PageBoundary } from "@/components/layout/page-boundary";
import { SignInGate } from "@/components/layout/sign-in";
import { CurrentRunProvider } from "@/components/runs/current-run";
import { TipProvider } from "@/components/tokens/tip-layer";
import { TrayProvider } from "@/components/tray/tray-context";
import { LoadingState } from "@/components/ui/states";
import { ShortcutsProvider } from "@/hooks/use-shortcut";

import { PaletteKey } from "./palette/palette-key";
import { allPages } from "./routes";

/** A query client that already fetches what every page needs. */
export function newQueryClient(): QueryClient {
  const queries: QueryClient = new QueryClient({
    defaultOptions: {
      // The server is often on this machine, which answers while the browser counts as offline.
      queries: { retry, retryDelay, staleTime: 10_000, refetchOnWindowFocus: false, networkMode: "always" },
      mutations: { networkMode: "always" },
    },
    // Any response reveals a revoked token (401), and any request without one that the server is gone.
    queryCache: new QueryCache({
      onError: (error, { queryHash }) => {
        if (!(error instanceof ApiError)) return;
        const revealed = error.status === 401 ? accessQuery : error.status === 0 ? healthQuery : null;
        if (revealed !== null && queryHash !== hashKey(revealed.queryKey))
          void queries.invalidateQueries({ queryKey: revealed.queryKey });
      },
      onSuccess: (_, { queryHash }) => {
        // The server is back: what failed without it is requested again.
        if (queryHash !== hashKey(healthQuery.queryKey)) return;
        const isUnanswered = ({ state }: Query) => state.error instanceof ApiError && state.error.status === 0;
        void queries.refetchQueries({ type: "active", predicate: isUnanswered });
      },
    }),
  });
  const ignoreError = () => undefined;
  queries.query(accessQuery).catch(ignoreError);
  queries.query(runsQuery).catch(ignoreError);
  queries.query(columnsQuery).catch(ignoreError);
  return queries;
}

/** The frame of a page whose chunk is loading, so that the screen is never empty. */
function LoadingPage() {
  return (
    <>
      <PageBar crumbs={[]} />
      <LoadingState label="Loading the page" />
    </>
  );
}

function Pages() {
  const [pages] = useState(allPages);
  return (
    <PageBoundary>
      <Suspense fallback={<LoadingPage />}>
        <Routes>
          {pages.map(({ path, Page }) => (
            <Route key={path} path={path} element={<Page />} />
          ))}
        </Routes>
      </Suspense>
    </PageBoundary>
  );
}

export function App({ queries }: { readonly queries: QueryClient }) {
  return (
    <QueryClientProvider client={queries}>
      <BrowserRouter>
        <ShortcutsProvider>
          <CurrentRunProvider>
            <TrayProvider>
              <TipProvider>
                <SignInGate>
                  <AppShell>
                    <Pages />
                  </AppShell>
                  <PaletteKey />
                </SignInGate>
              </TipProvider>
            </TrayProvider>
          </CurrentRunProvider>
        </ShortcutsProvider>
      </BrowserRouter>
    </QueryClientProvider>
  );
}
