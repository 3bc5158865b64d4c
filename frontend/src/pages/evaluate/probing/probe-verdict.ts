/** One sentence per probe: whether single experts detect its classes better than single MLP neurons. */

import type { ProbeSummary } from "@/api/types";
import { formatFixed, formatSigned } from "@/lib/text/format";

type ProbedClass = ProbeSummary["classes"][number];

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Standard error of the mean; 0 for one value. */
function standardError(values: readonly number[]): number {
  if (values.length < 2) return 0;
  const centre = mean(values);
  const variance = values.reduce((sum, value) => sum + (value - centre) ** 2, 0) / (values.length - 1);
  return Math.sqrt(variance / values.length);
}

/** F1 of the best expert minus F1 of the best neuron. */
export const expertAdvantage = ({ top1, neuron }: ProbedClass) => top1.f1 - neuron.f1;

export function probeVerdict(classes: readonly ProbedClass[]): string {
  const differences = classes.map(expertAdvantage);
  const lost = classes.filter((one) => expertAdvantage(one) < 0);
  const difference = mean(differences);
  const error = 2 * standardError(differences);
  const winner =
    Math.abs(difference) <= error || classes.length < 2
      ? "No clear difference between single experts and single MLP neurons"
      : difference > 0
        ? "Single experts detect the classes better than single MLP neurons"
        : "Single MLP neurons detect the classes better than single experts";
  const worst = lost.toSorted((a, b) => expertAdvantage(a) - expertAdvantage(b))[0];
  const largest =
    worst === undefined
      ? ""
      : `, most on ${worst.name} (${formatFixed(worst.neuron.f1, 3)} against ${formatFixed(worst.top1.f1, 3)})`;
  return `${winner}: F1 of the expert minus F1 of the neuron is ${formatSigned(difference, 3)} ± ${formatFixed(error, 3)} (mean over ${classes.length} classes, 2 standard errors). The best neuron beats the best expert in ${lost.length} of ${classes.length} classes${largest}.`;
}
