/** Server status: version, loaded language models and size of the database. */

import { useQuery } from "@tanstack/react-query";

import { accessQuery, useSignOut } from "@/api/access";
import { healthQuery } from "@/api/queries";
import type { Health } from "@/api/types";
import { formatBytes, formatCount } from "@/lib/text/format";

function LoadedModels({ models }: { readonly models: Health["language_models"] }) {
  if (models.length === 0) return <span>No language model loaded yet; the first prompt loads it</span>;
  return (
    <span>
      <span className="dot" />
      {models.map((lm) => `${lm.name} loaded, ${lm.dtype} on ${lm.device}`).join("; ")}
    </span>
  );
}

function SignedInStatus() {
  const { data } = useQuery(accessQuery);
  const signOut = useSignOut();
  if (data === undefined || !data.tokens_required || data.role === null) return null;
  return (
    <span>
      {data.role === "read" ? "Signed in: read access" : "Signed in: read and write access"}{" "}
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
      <SignedInStatus />
      <span className="grow" />
      {error !== null && <span className="bad">The server does not respond</span>}
      {data !== undefined && error === null && (
        <>
          <LoadedModels models={data.language_models} />
          <span>
            Database {formatBytes(data.database_bytes)}, {formatCount(data.examples)} examples
          </span>
        </>
      )}
    </footer>
  );
}
