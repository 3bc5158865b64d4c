/** The paper that introduces MxD. */
export const PAPER_URL = "https://arxiv.org/abs/2505.21364";
