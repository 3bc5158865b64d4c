/** Providers and what every page stands in. */

import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { Suspense, useState } from "react";
import { BrowserRouter, Route, Routes } from "react-router";

import { retry, retryDelay } from "@/api/again";
import { ApiError } from "@/api/errors";
import { accessQuery } from "@/api/access";
import { runsQuery } from "@/api/queries";
import { CurrentRunProvider } from "@/components/current-run";
import { AppShell } from "@/components/shell/app-shell";
import { PageBoundary } from "@/components/shell/page-boundary";
import { SignInGate } from "@/components/shell/sign-in";
import { ShortcutsProvider } from "@/components/shortcuts";
import { LoadingState } from "@/components/states";
import { TipProvider } from "@/components/tokens/tip-layer";
import { TrayProvider } from "@/components/tray/tray-context";

import { allPages } from "./pages";

/** What is known of the server, and at once a question for what every page waits for. */
export function newQueryClient(): QueryClient {
  const queries: QueryClient = new QueryClient({
    defaultOptions: { queries: { retry, retryDelay, staleTime: 10_000, refetchOnWindowFocus: false } },
    // A token that has been revoked shows in any answer.
    queryCache: new QueryCache({
      onError: (error) => {
        if (error instanceof ApiError && error.status === 401) {
          void queries.invalidateQueries({ queryKey: accessQuery.queryKey });
        }
      },
    }),
  });
  const failsLater = () => undefined;
  queries.query(accessQuery).catch(failsLater);
  queries.query(runsQuery).catch(failsLater);
  return queries;
}

function Pages() {
  const [pages] = useState(allPages);
  return (
    <PageBoundary>
      <Suspense fallback={<LoadingState label="Loading the page" />}>
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
                </SignInGate>
              </TipProvider>
            </TrayProvider>
          </CurrentRunProvider>
        </ShortcutsProvider>
      </BrowserRouter>
    </QueryClientProvider>
  );
}
