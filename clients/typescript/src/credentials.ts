/** Who the caller is: key or token as a header, certificates on the connection, and never a secret over an open network. */

import { ChannelCredentials, Metadata } from "@grpc/grpc-js";
import { tokenUnavailable } from "./errors.js";

const KEY_VARIABLE = "TIDEGATE_KEY";

/** TLS by PEM texts: the authorities that may sign the router's certificate (the system's when left out), and a certificate of our own. */
export interface TlsOptions {
  readonly ca?: string | Uint8Array | undefined;
  readonly certificate?: string | Uint8Array | undefined;
  readonly privateKey?: string | Uint8Array | undefined;
  /** Name that the router's certificate must have, where that is not the target's. */
  readonly serverName?: string | undefined;
}

/** Headers of a call: fixed, or made for each call. */
export type Headers = Readonly<Record<string, string>> | (() => Readonly<Record<string, string>>);

/** Who calls, and what keeps it secret. */
export interface CredentialOptions {
  /** API key; the environment's `TIDEGATE_KEY` when neither it nor a token is given. */
  readonly key?: string | undefined;
  /** Bearer token, or a function that gives one that is valid now; it is called for each connection. */
  readonly token?: string | (() => string | Promise<string>) | undefined;
  /** `true` trusts the system's certificate authorities. Left out: plaintext. */
  readonly tls?: boolean | TlsOptions | undefined;
  /** Sends key or token unencrypted to another machine, for networks that encrypt by themselves. */
  readonly allowPlaintext?: boolean | undefined;
}

/** A key would travel unencrypted to another machine. */
export class PlaintextRefused extends Error {
  override readonly name = "PlaintextRefused";
}

/** How a client is known to a router. */
export class Credentials {
  readonly channel: ChannelCredentials;
  readonly serverName: string | undefined;
  readonly #token: CredentialOptions["token"];

  /** Throws PlaintextRefused for a secret without TLS, unless the target is this machine or that is allowed. */
  constructor(target: string, { key, token, tls, allowPlaintext }: CredentialOptions) {
    if (key !== undefined && token !== undefined) throw new TypeError("give a key or a token, not both");
    this.#token = token ?? key ?? process.env[KEY_VARIABLE];
    const { ca, certificate, privateKey, serverName } = tls === true || !tls ? ({} as TlsOptions) : tls;
    if (this.#token && !tls && !allowPlaintext && !isLocal(target)) {
      throw new PlaintextRefused(`a key would go to ${target} unencrypted; set tls, or allowPlaintext if the network is safe`);
    }
    this.serverName = serverName;
    this.channel = tls
      ? ChannelCredentials.createSsl(toBuffer(ca), toBuffer(privateKey), toBuffer(certificate))
      : ChannelCredentials.createInsecure();
  }

  /** What is sent with a call: who calls, and the given headers, of which later ones win. Throws TOKEN_UNAVAILABLE. */
  async metadata(...headers: (Headers | undefined)[]): Promise<Metadata> {
    const metadata = new Metadata();
    try {
      const token = typeof this.#token === "function" ? await this.#token() : this.#token;
      if (token) metadata.set("authorization", `Bearer ${token}`);
      for (const given of headers) {
        for (const [name, value] of Object.entries((typeof given === "function" ? given() : given) ?? {})) metadata.set(name, value);
      }
    } catch (error) {
      throw tokenUnavailable(error);
    }
    return metadata;
  }
}

/** Whether a gRPC target is certainly on this machine: a Unix socket, `localhost` or a loopback address. */
export function isLocal(target: string): boolean {
  if (/^unix(-abstract)?:/.test(target)) return true;
  const addresses = target.replace(/^(dns|ipv4|ipv6):(\/\/[^/]*\/)?/, "").split(",");
  return addresses.every((address) => /^(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?$|^::1$/.test(address));
}

function toBuffer(pem: string | Uint8Array | undefined): Buffer | null {
  return pem === undefined ? null : Buffer.from(pem as string);
}
