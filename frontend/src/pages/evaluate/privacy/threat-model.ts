/** Against whom privacy fine-tuning is meant to help, and against whom it does not. */

export const THREAT_MODEL =
  "Threat model: the attacker queries the model with the new run in place and sees its next-token probabilities. They may start anywhere in a passage, or reword it. In the relearning attack they also have the weights and some of the passages.";

export const NOT_PROTECTED =
  "Not protected: the original model and the earlier runs, which still contain the passages, and all passages that are not listed.";
