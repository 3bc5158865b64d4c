/** Tags of an expert. Each links to the experts with the same tag; tags can be removed and added. */

import "./lists.css";

import { useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useId, useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/http/errors";
import { listsQuery, useSetTag } from "@/api/lists";
import { usePageLinks } from "@/components/runs/page-links";

interface ExpertTagsProps {
  readonly run: string;
  readonly expert: number;
  readonly tags: readonly string[];
}

export function ExpertTags({ run, expert, tags }: ExpertTagsProps) {
  const [text, setText] = useState("");
  const lists = useQuery(listsQuery(run));
  const links = usePageLinks();
  const tag = useSetTag(run, expert);
  const datalistId = useId();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (text.trim() !== "") tag.mutate({ tag: text.trim(), isTagged: true }, { onSuccess: () => setText("") });
  };
  return (
    <form className="expert-tags" aria-label="Tags" onSubmit={submit}>
      {tags.map((name) => (
        <span key={name} className="chip">
          <Link to={links.page("experts", { tag: name })}>{name}</Link>
          <button
            type="button"
            className="x"
            aria-label={`Remove tag ${name}`}
            onClick={() => tag.mutate({ tag: name, isTagged: false })}
          >
            ×
          </button>
        </span>
      ))}
      <input
        className="tag-input"
        aria-label="Add tag"
        placeholder="Add tag"
        list={datalistId}
        maxLength={60}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <datalist id={datalistId}>
        {lists.data?.tags
          .filter((candidate) => !tags.includes(candidate.tag))
          .map((one) => (
            <option key={one.tag} value={one.tag} />
          ))}
      </datalist>
      {tag.error !== null && (
        <span className="bad" role="alert">
          {messageOf(tag.error)}
        </span>
      )}
    </form>
  );
}
