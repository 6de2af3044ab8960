/** An HTTP service that answers questions: `curl -N localhost:3000 -d "Why is the sky blue?"` streams text. */

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import { Client, Exhausted, RequestInvalid, system, TidegateError, Unavailable, user } from "tidegate";

const client = new Client(process.env["TIDEGATE_TARGET"] ?? "127.0.0.1:8500", { headers: { "x-service": "answers" } });

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const gone = new AbortController();
  response.on("close", () => gone.abort());
  try {
    const question = [system("Answer in at most three sentences."), user(await text(request))];
    const turn = client.chat(question, { maxOutputTokens: 256, timeoutMs: 30_000, signal: gone.signal });
    for await (const event of turn) {
      if (event.case === "textDelta") response.write(event.value.text);
    }
    response.end();
    console.log("turn", turn.started?.turnId, "on", turn.started?.worker, "took", turn.usage?.completionTokens, "tokens");
  } catch (error) {
    if (!gone.signal.aborted) refuse(response, error);
  }
}

function refuse(response: ServerResponse, error: unknown): void {
  const known = error instanceof TidegateError ? error : undefined;
  console.error("failed", known?.reason, known?.requestId);
  if (response.headersSent) {
    response.destroy(); // half an answer must not look like a whole one
    return;
  }
  const busy = error instanceof Unavailable || error instanceof Exhausted;
  response.statusCode = error instanceof RequestInvalid ? 400 : busy ? 503 : 500;
  if (known?.retryAfterMs) response.setHeader("retry-after", Math.ceil(known.retryAfterMs / 1000));
  response.end(known?.reason ?? "INTERNAL");
}

const server = createServer((request, response) => void answer(request, response));
server.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1", () => console.log("listening on", server.address()));

process.once("SIGTERM", () => {
  server.close(() => void client.close()); // the answers that run are finished first
});
