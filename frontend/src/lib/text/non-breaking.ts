/** Text whose percent signs, arrows and equals signs stay in the line of their number. */
export const nonBreaking = (text: string) => text.replace(/ (?=%|→|=)|(?<=→|=) /g, "\u00a0");
