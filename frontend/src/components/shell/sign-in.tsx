/** Stands in for every page where the server asks for a token and this browser has none. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, type SubmitEvent, useState } from "react";

import { messageOf } from "@/api/errors";
import { accessQuery, useSignIn } from "@/api/access";

import { Button } from "../button";
import { Command } from "../command";

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
      <p>This server is open to other machines, so it asks for a token. Whoever runs it makes one with</p>
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
