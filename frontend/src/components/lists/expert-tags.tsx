/** The tags of an expert: each leads to the experts that share it and can be taken off; new ones are typed. */

import "./lists.css";

import { useQuery } from "@tanstack/react-query";
import { type SubmitEvent, useId, useState } from "react";
import { Link } from "react-router";

import { messageOf } from "@/api/errors";
import { tagsQuery, useTag } from "@/api/lists";

import { usePageLinks } from "../links";

interface ExpertTagsProps {
  readonly run: string;
  readonly expert: number;
  readonly tags: readonly string[];
}

export function ExpertTags({ run, expert, tags }: ExpertTagsProps) {
  const [text, setText] = useState("");
  const known = useQuery(tagsQuery(run));
  const links = usePageLinks();
  const tag = useTag(run, expert);
  const choices = useId();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    if (text.trim() !== "") tag.mutate({ tag: text.trim(), put: true }, { onSuccess: () => setText("") });
  };
  return (
    <form className="expert-tags" aria-label="Tags" onSubmit={submit}>
      {tags.map((name) => (
        <span key={name} className="chip">
          <Link to={links.page("experts", { tag: name })}>{name}</Link>
          <button
            type="button"
            className="x"
            aria-label={`Take the tag ${name} off`}
            onClick={() => tag.mutate({ tag: name, put: false })}
          >
            ×
          </button>
        </span>
      ))}
      <input
        className="tag-input"
        aria-label="Add a tag"
        placeholder="Add a tag"
        list={choices}
        maxLength={60}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      <datalist id={choices}>
        {known.data?.tags
          .filter((one) => !tags.includes(one.tag))
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
