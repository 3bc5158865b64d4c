/** What the server holds: version, language models in memory, size of the store. */

import { useQuery } from "@tanstack/react-query";

import { healthQuery } from "@/api/queries";
import { accessQuery, useSignOut } from "@/api/access";
import type { Health } from "@/api/types";
import { formatBytes, formatCount } from "@/lib/format";

import { shortSource } from "../run-words";

function Loaded({ models }: { readonly models: Health["language_models"] }) {
  if (models.length === 0) return <span>No language model loaded yet</span>;
  return (
    <span>
      <span className="dot" />
      {models.map((lm) => `${shortSource(lm.source)} loaded, ${lm.dtype} on ${lm.device}`).join("; ")}
    </span>
  );
}

function SignedIn() {
  const { data } = useQuery(accessQuery);
  const signOut = useSignOut();
  if (data === undefined || !data.tokens_required || data.role === null) return null;
  return (
    <span>
      {data.role === "read" ? "Your token may read" : "Your token may read and write"}{" "}
      <button type="button" className="link" onClick={() => signOut.mutate()}>
        Sign out
      </button>
    </span>
  );
}

export function StatusLine() {
  const { data, error } = useQuery(healthQuery);
  return (
    <footer className="status">
      <span className="mk">MxD Explorer {data?.version}</span>
      <SignedIn />
      <span className="grow" />
      {error !== null && <span className="bad">The server does not answer</span>}
      {data !== undefined && error === null && (
        <>
          <Loaded models={data.language_models} />
          <span>
            Store {formatBytes(data.store_bytes)}, {formatCount(data.contexts)} contexts
          </span>
        </>
      )}
    </footer>
  );
}
