/** Providers and pages. Each page is a chunk of its own. */

import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { lazy, Suspense, useState } from "react";
import { BrowserRouter, Route, Routes } from "react-router";

import { ApiError } from "@/api/errors";
import { accessQuery } from "@/api/access";
import { CurrentRunProvider } from "@/components/current-run";
import { AppShell } from "@/components/shell/app-shell";
import { PageBoundary } from "@/components/shell/page-boundary";
import { SignInGate } from "@/components/shell/sign-in";
import { ShortcutsProvider } from "@/components/shortcuts";
import { LoadingState } from "@/components/states";
import { TipProvider } from "@/components/tokens/tip-layer";
import { TrayProvider } from "@/components/tray/tray-context";

const Home = lazy(() => import("@/pages/home"));
const Runs = lazy(() => import("@/pages/runs"));
const Compare = lazy(() => import("@/pages/compare"));
const Run = lazy(() => import("@/pages/run"));
const Experts = lazy(() => import("@/pages/experts"));
const Expert = lazy(() => import("@/pages/expert"));
const Search = lazy(() => import("@/pages/search"));
const Lists = lazy(() => import("@/pages/lists"));
const List = lazy(() => import("@/pages/list"));
const Routing = lazy(() => import("@/pages/routing"));
const Steering = lazy(() => import("@/pages/steering"));
const Session = lazy(() => import("@/pages/session"));
const Frontier = lazy(() => import("@/pages/frontier"));
const Faithfulness = lazy(() => import("@/pages/faithfulness"));
const Health = lazy(() => import("@/pages/health"));
const Probing = lazy(() => import("@/pages/probing"));
const NotFound = lazy(() => import("@/pages/not-found"));

/** What the server refused stays refused; only missing answers are asked for again. */
const retry = (count: number, error: Error) => count < 2 && !(error instanceof ApiError && error.status >= 400);

function newQueryClient(): QueryClient {
  const queries: QueryClient = new QueryClient({
    defaultOptions: { queries: { retry, staleTime: 10_000, refetchOnWindowFocus: false } },
    // A token that has been revoked shows in any answer.
    queryCache: new QueryCache({
      onError: (error) => {
        if (error instanceof ApiError && error.status === 401) {
          void queries.invalidateQueries({ queryKey: accessQuery.queryKey });
        }
      },
    }),
  });
  return queries;
}

function Pages() {
  return (
    <PageBoundary>
      <Suspense fallback={<LoadingState label="Loading the page" />}>
        <Routes>
          <Route index element={<Home />} />
          <Route path="runs" element={<Runs />} />
          <Route path="runs/:run" element={<Run />} />
          <Route path="compare" element={<Compare />} />
          <Route path="experts" element={<Experts />} />
          <Route path="experts/:expert" element={<Expert />} />
          <Route path="search" element={<Search />} />
          <Route path="lists" element={<Lists />} />
          <Route path="lists/:list" element={<List />} />
          <Route path="routing" element={<Routing />} />
          <Route path="steering" element={<Steering />} />
          <Route path="s/:id" element={<Session />} />
          <Route path="frontier" element={<Frontier />} />
          <Route path="faithfulness" element={<Faithfulness />} />
          <Route path="health" element={<Health />} />
          <Route path="probing" element={<Probing />} />
          <Route path="*" element={<NotFound />} />
        </Routes>
      </Suspense>
    </PageBoundary>
  );
}

export function App() {
  const [queries] = useState(newQueryClient);
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
