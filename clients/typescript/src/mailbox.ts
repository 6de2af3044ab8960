/** A queue between the stream that brings items and the one loop that reads them. */

/** Keeps items until they are read; `undefined` is the end. */
export class Mailbox<Item extends object> {
  readonly #items: Item[] = [];
  #wake: (() => void) | undefined;
  #ended = false;
  #error: unknown;

  /** Adds an item; ignored after the end. */
  put(item: Item): void {
    if (this.#ended) return;
    this.#items.push(item);
    this.#wake?.();
  }

  /** Nothing more comes. What is there is still read, then `error` is thrown, where there is one. */
  end(error?: unknown): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake?.();
  }

  /** As `end`, and what is there is not read any more. */
  abort(error: unknown): void {
    if (!this.#ended) this.#items.length = 0;
    this.end(error);
  }

  /** The next item, waiting for it. Throws what the mailbox was ended with. */
  async next(): Promise<Item | undefined> {
    while (this.#items.length === 0 && !this.#ended) {
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const item = this.#items.shift();
    if (item === undefined && this.#error !== undefined) throw this.#error;
    return item;
  }
}
