/**
 * One-line definitions of the terms on screen. The Glossary page lists them; column headers and headings show them.
 * null: a column of the experts, which the server describes.
 */

interface DescribedColumn {
  readonly key: string;
  readonly title: string;
  readonly description: string;
}

interface Entry {
  readonly name: string;
  readonly text: string;
}

export const GLOSSARY = {
  mxd: {
    name: "MxD (mixture of decoders)",
    text: "A layer that replaces a language model’s MLP by thousands of experts. Each expert is a linear map. Only the few that a token activates are computed.",
  },
  run: { name: "Run", text: "One trained layer with its settings, metrics and index." },
  expert: {
    name: "Expert",
    text: "One of the N linear maps of a layer. In a transcoder, which is also supported, it is one feature: a single direction.",
  },
  k: { name: "K", text: "Number of experts that are active on each token." },
  activation: {
    name: "Activation (of an expert)",
    text: "The value that the gate gives an expert on a token, zero or positive; the paper calls it the expert coefficient. It scales the expert’s output. The activation function of a run is something else.",
  },
  density: null,
  mean_activation: null,
  p99: null,
  histogram: null,
  max_activation: null,
  above_half: {
    name: "Above half of max",
    text: "Share of the expert’s active tokens with more than half of the maximum activation. Labels describe the strongest examples. If the share is small, they describe few of the activations.",
  },
  entropy: null,
  nats: {
    name: "nats",
    text: "Unit of log-probabilities and losses, with the natural logarithm. A change of +0.69 nats doubles a probability; 1 mnat is 0.001 nats.",
  },
  loss_increase: null,
  loss_increase_of_run: {
    name: "Loss increase of a run",
    text: "Mean rise of the next-token loss on held-out text, in nats per token, when the run replaces the MLP of its layer.",
  },
  kl_amplified: null,
  output_share: null,
  recurrence: null,
  recurrence_chance: {
    name: "Chance (of a match)",
    text: "Cosine that a match must exceed. For firing: the 99th percentile of shuffled experts with as many active tokens. For outputs: the 95th percentile of random pairs.",
  },
  direct_logit_effect: {
    name: "Direct logit effect",
    text: "Tokens whose log-probability the expert’s output raises or lowers most on its examples. It counts if its largest rise exceeds those of 95 % of random experts of similar density, put in its place on the same tokens.",
  },
  input_dependence: null,
  top_tokens: null,
  top_example: {
    name: "Top example",
    text: "A window of text around a token on which the expert is strongly active. The peak token is outlined.",
  },
  bin: {
    name: "Activation bin",
    text: "Examples are stored for several ranges of activation, so that weak activations can be read too.",
  },
  automatic_label: {
    name: "Automatic label",
    text: "A label derived from stored examples. “English:” before a rule limits it to English text. Beside it stands its F1 on held-out tokens, from precision and recall. Its balanced accuracy is the mean of the shares of held-out examples that it matches and of inactive tokens that it does not. 0.5 is chance, 1 is perfect. The examples are few and mostly strong, so a good accuracy does not cover weak activations: precision and recall do. Sorted by label, user labels come first, then automatic ones by the lower end of the accuracy’s 95 % interval, so that few examples do not rank first.",
  },
  weak_label: {
    name: "Weak label",
    text: "An automatic label whose balanced accuracy is below 0.65, whose precision is below 25 %, or whose recall is below 10 %. It is shown in grey italics.",
  },
  no_label: {
    name: "No label yet",
    text: "The expert has neither a user label nor an automatic one. mxd label writes automatic labels from the stored examples. Experts with too few or too varied examples get none.",
  },
  precision: {
    name: "Precision (of an automatic label)",
    text: "Share of the tokens that match the label on which the expert is active, on a held-out sample.",
  },
  recall: {
    name: "Recall (of an automatic label)",
    text: "Share of the expert’s active tokens that match the label, on a held-out sample.",
  },
  coactivation: {
    name: "Co-activating experts",
    text: "Experts that are active on the same token, the token before or the token after, counted in a sample of the indexed text. × is the ratio to their usual rate. Below 20 active tokens, only counts are shown.",
  },
  similar: {
    name: "Similarity",
    text: "gate, output: cosine of the experts’ vectors in the weights. tokens: cosine of their counts per token type. co-activation: tokens with both experts divided by tokens with either. The last two are counted in a sample of the indexed text.",
  },
  stable_rank: {
    name: "Stable rank",
    text: "Effective number of output directions of the expert’s matrix; a map with a single output direction has 1.",
  },
  summed_activation: { name: "Summed activation", text: "Sum of the expert’s activations on the passage." },
  lift: {
    name: "Lift",
    text: "Share of the passage’s tokens on which the expert is active, divided by its density on the indexed text. Experts are ranked by the lower end of the 95 % interval. It treats tokens as independent (Wilson). Tokens of one passage are not, so it is too narrow.",
  },
  rate_ratio: {
    name: "Density ratio",
    text: "Activation density in one text divided by that in the other, with half an active token added to each. Experts are ranked by the end of the 95 % interval that is nearer to 1.",
  },
  q_value: {
    name: "q-value",
    text: "False discovery rate (Benjamini-Hochberg): the expected share of chance findings among all experts with at most this q. Experts with q ≤ 0.05 are listed.",
  },
  edit: {
    name: "Edit",
    text: "An intervention on one expert’s activation: scale it, add to it, set it, or ablate it (set it to zero). The unit of add and set is the expert’s p99.",
  },
  condition: {
    name: "Condition of an edit",
    text: "Tokens on which an edit applies: a part of the text, the first tokens, until a text is written, or only where another expert’s activation passes a level.",
  },
  strength_sweep: {
    name: "Strength sweep",
    text: "The same prompt continued at several strengths of one edit. The suggested strength is the smallest one at which promoted tokens are clearly more probable than with the control. Perplexity may be at most 2 times the baseline’s.",
  },
  concept_activation: {
    name: "Mean activation of the texts",
    text: "Mean activation of the expert while the unedited model reads the new texts, in % of its p99. It is high if the texts contain what the expert fires on.",
  },
  promoted_share: {
    name: "Probability of promoted tokens",
    text: "Probability, with the edit, that the next token is one of the 20 that the expert promotes most after this prompt. It is the mean over the new tokens, and has less noise than counting sampled tokens.",
  },
  control_expert: {
    name: "Control",
    text: "A random expert of similar density, edited in the same way and with the same random numbers. A difference is clear if it is at least two standard errors, and at least 1 % of p99 (activation) or 1 percentage point (probability of promoted tokens). These limits are conventions of MxD Explorer.",
  },
  perplexity_ratio: {
    name: "Perplexity ratio",
    text: "Perplexity of the steered text under the unedited model, divided by that of the baseline text. Above 2, the text is no longer fluent.",
  },
  steered: {
    name: "Baseline and steered",
    text: "The text without edits and the text with them, generated from the same random numbers.",
  },
  output_norm: {
    name: "Share of output norm",
    text: "The expert’s share of the summed norms of all active experts’ outputs on this token.",
  },
  specificity: {
    name: "Order of the experts",
    text: "Specific: the largest activation in the text, times log₂(1 / activation density). Experts that are active on most tokens of any text come last.",
  },
  difference_score: {
    name: "Score of a difference",
    text: "The largest difference on one pair of tokens, or that of the sums over whole texts, times log₂(1 / activation density). Experts that are active on most tokens come last.",
  },
  traced_order: {
    name: "Share × rarity",
    text: "The expert’s share of the layer’s output norm on this token, times log₂(1 / activation density). Experts that are active on most tokens come last.",
  },
  next_effect: {
    name: "Effect on the next token",
    text: "How much an expert raises the logit of the original model’s most probable next token, relative to the mean logit. Measured: the model runs again with the expert ablated on this token.",
  },
  kl: {
    name: "KL divergence",
    text: "Divergence of one next-token distribution from another, in nats. It is 0 if they are equal.",
  },
  edit_price: {
    name: "Price (of edits)",
    text: "What edits do to unrelated text: the KL divergence of the next-token distribution from the original one, in nats per token. Random experts at the same strength are the baseline. Edits are costly from twice the KL of random experts, or if they clearly cost ability. This limit is a convention of MxD Explorer.",
  },
  circuit: {
    name: "Circuit",
    text: "The experts with the largest effects on one prediction, and their effects on one another.",
  },
  circuit_verdict: {
    name: "Verdict on a circuit",
    text: "Each shown expert is ablated in the model. Sufficient and necessary compare the shown experts with what all active experts add to the target: kept alone, and ablated together. ± is the standard deviation over random sets of as many experts. The limits of the words stand below the figures; they are conventions of MxD Explorer.",
  },
  circuit_effect: {
    name: "Effect in a circuit",
    text: "Change of the target when an expert is ablated on one token. Predicted: minus the gradient of the target at the MLP’s output, times the expert’s contribution. Measured: the model runs again without it.",
  },
  circuit_scores: {
    name: "Replacement and completeness",
    text: "Scores of circuit-tracer. Replacement: share of the influence on the target that starts at tokens, and not at errors of the layers. Completeness: mean share of the inputs of target and experts that are not errors, weighted by influence. 1 means no errors.",
  },
  normalised_mse: {
    name: "Normalised MSE",
    text: "Mean of the squared error of the layer’s output divided by the squared norm of the MLP’s output. 0 is exact; 1 is as bad as predicting zero.",
  },
  loss_recovered: {
    name: "Loss recovered",
    text: "1 minus the loss increase of the run divided by that of ablating the MLP. The reference is mean ablation unless zero ablation is named.",
  },
  ablation: {
    name: "Zero and mean ablation",
    text: "The MLP’s output is set to zero, or to its mean over tokens. The rise of the loss says how much the MLP contributes.",
  },
  continuations: {
    name: "Equal continuations",
    text: "Share of held-out prompts that the model continues with the same tokens with and without the run. It always takes the most probable token, so one different token changes all later ones. Intervals: Wilson, 95 %, over prompts.",
  },
  top1_agreement: {
    name: "Top-1 agreement",
    text: "Share of tokens on which the models with and without the run have the same most probable next token.",
  },
  variance_explained: {
    name: "Variance explained",
    text: "1 minus the variance of the layer’s error divided by the variance of the MLP’s output. Predicting the mean output scores 0.",
  },
  jacobian_agreement: {
    name: "Jacobian agreement",
    text: "Cosine of what layer and MLP do to a small change of the input, averaged over tokens and directions; 1 is equal. The control compares with the MLP at another token.",
  },
  routing_share: {
    name: "Routing share",
    text: "Loss increase when the mixing of experts is frozen at its median over tokens, divided by that of mean-ablating the whole layer. Above 100 %, the frozen layer predicts worse than the MLP’s mean output.",
  },
  strict_routing_share: {
    name: "Strict routing share",
    text: "As the routing share, with the constant mixing that fits the MLP best instead of the median. Below 100 %, the rest is what the shared dense path does without routing. Above 100 %, the frozen layer predicts worse than the MLP’s mean output. The share then does not measure what a dense path, such as a skip path, adds.",
  },
  decoder_share: {
    name: "Decoder share",
    text: "Loss increase when the dense path that all experts share is frozen at its median over tokens, divided by that of mean-ablating the whole layer. Each expert then adds a fixed direction, as a transcoder feature does. If the loss hardly increases, the experts act as vectors, not as matrices.",
  },
  dead_share: {
    name: "Inactive and dead experts",
    text: "Share of experts that are active on none of the tokens of a sample. An expert counts as dead only if the sample is large: on few tokens, rare experts are not seen either.",
  },
  l0: { name: "L0", text: "Mean number of experts that are active per token." },
  interval: {
    name: "95 % interval",
    text: "Range that contains the true value with 95 % confidence, from resampling the test texts, sequences or data sets. Shares have Wilson intervals instead. If two intervals do not overlap, the difference is clear. If they overlap, it may still be.",
  },
  f1: { name: "F1", text: "Harmonic mean of precision and recall of a classifier; 1 is perfect." },
  balanced_accuracy: {
    name: "Balanced accuracy",
    text: "Mean of the shares of texts that are classified correctly inside and outside the class; 0.5 is chance.",
  },
  roc_auc: {
    name: "ROC-AUC",
    text: "Probability that a text of the class scores higher than another text; 0.5 is chance, 1 is perfect.",
  },
  best_neuron: {
    name: "Best neuron",
    text: "The best hidden neuron of the original MLP, selected and scored like the best expert.",
  },
  random_gate: {
    name: "Random gate",
    text: "The best unit of an untrained gate with as many units as the run has experts: what selection among many reaches by chance.",
  },
  trained_tokens: { name: "Tokens", text: "Number of tokens that the run was trained on." },
  training_mse: {
    name: "Normalised MSE in training",
    text: "Squared error of the layer’s output divided by the squared norm of the MLP’s output, on the last training batches. 0 is exact; 1 is as bad as predicting zero. Only runs of the same layer can be compared.",
  },
  training_dead: {
    name: "Dead in training",
    text: "Share of experts that were active on none of the last 262,144 training tokens, or of all if there were fewer.",
  },
  active_experts: {
    name: "Active experts",
    text: "Number of experts that were active at least once in the index. Their share depends on how many tokens were indexed.",
  },
  method: {
    name: "Method",
    text: "Kind of sparse layer. MxD: experts are linear maps that share factors. Transcoder: experts are single directions, with or without a linear skip connection.",
  },
  activation_function: {
    name: "Activation function",
    text: "Nonlinearity inside the layer, such as SiLU; a setting of the run. It is not the activation of an expert.",
  },
  layer: { name: "Layer", text: "Index of the transformer block whose MLP the run replaces, counted from 0." },
} satisfies Readonly<Record<string, Entry | null>>;

export type TermId = keyof typeof GLOSSARY;

/** The definition of a term or of a column. */
export function definitionOf(id: string, columns: readonly DescribedColumn[]): Entry {
  const column = columns.find(({ key }) => key === id);
  return (
    (GLOSSARY as Readonly<Record<string, Entry | null>>)[id] ?? {
      name: column?.title ?? id,
      text: column?.description ?? "",
    }
  );
}
