/** Durations of the API are milliseconds here. */

import { create } from "@bufbuild/protobuf";
import { type Duration, DurationSchema } from "@bufbuild/protobuf/wkt";

/** A protobuf Duration in milliseconds. */
export function toMs(duration: Duration): number {
  return Number(duration.seconds) * 1000 + duration.nanos / 1e6;
}

/** Milliseconds as a protobuf Duration. */
export function toDuration(ms: number): Duration {
  const whole = Math.max(0, Math.round(ms));
  return create(DurationSchema, { seconds: BigInt(Math.floor(whole / 1000)), nanos: (whole % 1000) * 1e6 });
}

/** Waits for `promise`, at most `ms` milliseconds; tells whether it came. */
export async function within(promise: Promise<void>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<false>((resolve) => (timer = setTimeout(resolve, ms, false)));
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Opens once; what waits for it goes on then. */
export class Gate {
  isOpen = false;
  #resolve!: () => void;
  readonly opened = new Promise<void>((resolve) => (this.#resolve = resolve));

  open(): void {
    this.isOpen = true;
    this.#resolve();
  }
}
