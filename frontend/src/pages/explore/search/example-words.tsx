/** Words to search for, from the labels of the run's most interesting experts. */

import { shownAutomatic } from "@/components/experts/automatic-label";
import { Button } from "@/components/ui/button";
import { useBestExperts } from "@/hooks/use-best-experts";

const MAX_WORDS = 6;
const QUOTED = /“(\p{L}[^”<|]+)”/u;

interface ExampleWordsProps {
  readonly run: string;
  readonly onChoose: (text: string) => void;
}

export function ExampleWords({ run, onChoose }: ExampleWordsProps) {
  const { experts } = useBestExperts(run);
  const quoted = experts.flatMap(
    ({ label, automatic }) => QUOTED.exec(label ?? shownAutomatic(automatic)?.label ?? "")?.[1] ?? [],
  );
  const words = [...new Set(quoted)].slice(0, MAX_WORDS);
  if (words.length === 0) return null;
  return (
    <p className="example-words">
      For example:{" "}
      {words.map((word) => (
        <Button key={word} size="small" onClick={() => onChoose(word)}>
          {word}
        </Button>
      ))}
    </p>
  );
}
