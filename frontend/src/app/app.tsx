/** Providers and routes. */

import {
  hashKey,
  MutationCache,
  type Query,
  QueryCache,
  QueryClient,
  QueryClientProvider,
  useQuery,
} from "@tanstack/react-query";
import { Component, type ReactNode, type SubmitEvent, Suspense, useEffect, useState } from "react";
import { BrowserRouter, Route, Routes, useLocation } from "react-router";

import { useSignIn } from "@/api/mutations";
import { accessQuery, columnsQuery, healthQuery, runsQuery } from "@/api/queries";
import { ApiError, retry, retryDelay } from "@/api/http";
import { AppShell } from "@/components/layout/app-shell";
import { PageBar } from "@/components/layout/navigation/page-bar";
import { CurrentRunProvider } from "@/components/runs/current-run";
import { Button } from "@/components/ui/button";
import { Command } from "@/components/ui/copy-button";
import { ErrorState, Failure, LoadingState } from "@/components/ui/states";

import { allPages } from "./routes";

interface BoundaryProps {
  readonly children: ReactNode;
}

interface BoundaryState {
  readonly error: unknown;
}

class Boundary extends Component<BoundaryProps, BoundaryState> {
  override state: BoundaryState = { error: null };

  static getDerivedStateFromError(error: unknown): BoundaryState {
    return { error };
  }

  override render(): ReactNode {
    const { error } = this.state;
    return error === null ? this.props.children : <BrokenPage error={error} />;
  }
}

const RELOAD_AFTER_MS = 5000;

/** A browser may remember that a script could not be fetched, so the page is loaded again once the server is back. */
function BrokenPage({ error }: { readonly error: unknown }) {
  const isUnfetched = error instanceof ApiError && error.status === 0;
  const { dataUpdatedAt } = useQuery({ ...healthQuery, enabled: isUnfetched, refetchInterval: RELOAD_AFTER_MS / 2 });
  const [brokenAt] = useState(() => Date.now());
  const isBack = isUnfetched && dataUpdatedAt > brokenAt;
  useEffect(() => {
    // Not at once after a load: a script that is missing for ever is then requested every few seconds.
    if (isBack && performance.now() > RELOAD_AFTER_MS) window.location.reload();
  }, [isBack, dataUpdatedAt]);
  return <ErrorState error={error} onRetry={() => window.location.reload()} />;
}

/** Error boundary around the page; navigating to another page resets it. */
function PageBoundary({ children }: BoundaryProps) {
  const { pathname } = useLocation();
  return <Boundary key={pathname}>{children}</Boundary>;
}

/** Replaces every page with the sign-in form while the server requires a token and this browser has none. */
function SignInGate({ children }: { readonly children: ReactNode }) {
  const { data } = useQuery(accessQuery);
  return data?.role === null ? <SignIn /> : children;
}

function SignIn() {
  const [token, setToken] = useState("");
  const signIn = useSignIn();
  const onSubmit = (event: SubmitEvent) => {
    event.preventDefault();
    signIn.mutate(token.trim());
  };
  return (
    <main className="state alone sign-in" id="main">
      <title>Sign in · MxD Explorer</title>
      <h1>Sign in to MxD Explorer</h1>
      <p>This server is exposed on the network and requires an access token.</p>
      <form onSubmit={onSubmit}>
        <label htmlFor="token">Token</label>
        <div className="field secret">
          <input
            id="token"
            type="password"
            autoComplete="current-password"
            spellCheck={false}
            maxLength={200}
            required
            value={token}
            onChange={(event) => setToken(event.target.value)}
          />
        </div>
        <Button type="submit" variant="primary" disabled={signIn.isPending}>
          Sign in
        </Button>
        <Failure error={signIn.error} />
      </form>
      <p>To create a token, run this on the server:</p>
      <Command text="mxd token create --role read" />
    </main>
  );
}

/** Kinds of queries that show labels, tags, lists or sessions. */
const SHOWS_CHANGES = new Set(["expert", "experts", "lists", "list", "sessions"]);

/** A query client that already fetches what every page needs. */
export function newQueryClient(): QueryClient {
  const otherTabs = new BroadcastChannel("mxd-changes");
  const queries: QueryClient = new QueryClient({
    defaultOptions: {
      // The server is often on this machine, which answers while the browser counts as offline.
      queries: { retry, retryDelay, staleTime: 10_000, refetchOnWindowFocus: false, networkMode: "always" },
      mutations: { networkMode: "always" },
    },
    mutationCache: new MutationCache({ onSuccess: () => otherTabs.postMessage(null) }),
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
  otherTabs.onmessage = () =>
    void queries.invalidateQueries({ predicate: ({ queryKey }) => SHOWS_CHANGES.has(String(queryKey[2])) });
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
        <CurrentRunProvider>
          <SignInGate>
            <AppShell>
              <Pages />
            </AppShell>
          </SignInGate>
        </CurrentRunProvider>
      </BrowserRouter>
    </QueryClientProvider>
  );
}
