// The live panel: three numbers of the node out of `/metrics`.

import { buckets, parse, quantile } from "./metrics.js";

/** Milliseconds between two readings. */
const EVERY_MS = 2_000;
/** Readings that are kept: the rate is over the last few, the latency over all of them, so that it does not flicker. */
const RATE_READINGS = 5;
const KEPT_READINGS = 30;

const COMMITTED = "penstock_sends_committed_total";
const SENDACK = "penstock_gateway_sendack_seconds";
const CONNECTIONS = "penstock_gateway_connections";

/** Reads while the page is visible and shows what it reads in these elements. */
export class Panel {
  #api;
  #rate;
  #latency;
  #connections;
  #readings = [];

  constructor(api, { rate, latency, connections }) {
    this.#api = api;
    [this.#rate, this.#latency, this.#connections] = [rate, latency, connections];
  }

  start() {
    const timer = setInterval(() => this.#read(), EVERY_MS);
    this.#read();
    return () => clearInterval(timer);
  }

  async #read() {
    if (document.hidden) return;
    try {
      const series = parse(await this.#api.metrics());
      const reading = { at: performance.now(), committed: series.get(COMMITTED), sendack: buckets(series, SENDACK) };
      const last = this.#readings.at(-1);
      // A counter that fell belongs to a node that was started anew.
      if (last && reading.committed < last.committed) this.#readings = [];
      this.#readings = [...this.#readings, reading].slice(-KEPT_READINGS);
      this.#show(series.get(CONNECTIONS));
    } catch {
      this.#readings = [];
      for (const element of [this.#rate, this.#latency, this.#connections]) element.textContent = "–";
    }
  }

  #show(connections) {
    const now = this.#readings.at(-1);
    const recent = this.#readings.at(-RATE_READINGS) ?? this.#readings[0];
    const seconds = (now.at - recent.at) / 1_000;
    const perSecond = seconds > 0 ? (now.committed - recent.committed) / seconds : 0;
    const latency = quantile(this.#readings[0].sendack, now.sendack, 0.99);
    this.#rate.textContent = perSecond === 0 || perSecond >= 10 ? perSecond.toFixed(0) : perSecond.toFixed(1);
    this.#latency.textContent = latency === null ? "–" : milliseconds(latency * 1_000);
    this.#connections.textContent = String(connections);
  }
}

function milliseconds(value) {
  return `${value >= 10 ? value.toFixed(0) : value.toFixed(1)} ms`;
}
