// The little of the Prometheus text format that the panel needs.

/** All series of a text: name with labels → value. */
export function parse(text) {
  const series = new Map();
  for (const line of text.split("\n")) {
    const space = line.lastIndexOf(" ");
    if (line.startsWith("#") || space < 0) continue;
    series.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return series;
}

/** The buckets of a histogram, by rising bound: `[bound in seconds, how many were at most that]`. */
export function buckets(series, name) {
  const found = [];
  for (const [key, count] of series) {
    if (!key.startsWith(`${name}_bucket{`)) continue;
    const bound = /le="([^"]*)"/.exec(key)?.[1];
    found.push([bound === "+Inf" ? Infinity : Number(bound), count]);
  }
  return found.sort(([left], [right]) => left - right);
}

/**
 * The quantile of what was counted between two readings, in seconds, as Prometheus estimates it: evenly spread within a
 * bucket. `null` when nothing was counted; the last finite bound when it lies above.
 */
export function quantile(before, after, wanted) {
  const earlier = new Map(before);
  const counts = after.map(([bound, count]) => [bound, count - (earlier.get(bound) ?? 0)]);
  const total = counts.at(-1)?.[1] ?? 0;
  if (total <= 0) return null;
  const rank = wanted * total;
  let [lower, below] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= rank) {
      if (bound === Infinity) return lower;
      return lower + ((bound - lower) * (rank - below)) / (count - below);
    }
    [lower, below] = [bound, count];
  }
  return lower;
}
