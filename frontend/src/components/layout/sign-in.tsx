/** Replaces every page with the sign-in form while the server requires a token and this browser has none. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, type SubmitEvent, useState } from "react";

import { accessQuery, useSignIn } from "@/api/access";
import { messageOf } from "@/api/http/errors";
import { Button } from "@/components/ui/button";
import { Command } from "@/components/ui/copyable-command";

export function SignInGate({ children }: { readonly children: ReactNode }) {
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
    <main className="state sign-in" id="main">
      <title>Sign in · MxD Explorer</title>
      <h1>Sign in to MxD Explorer</h1>
      <p>This server is exposed on the network and requires an access token. On the server, create one with:</p>
      <Command text="mxd token create --role read" />
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
        {signIn.error !== null && (
          <p className="bad" role="alert">
            {messageOf(signIn.error)}
          </p>
        )}
      </form>
    </main>
  );
}
